"""Write the card of an evaluation that the history holds; nothing is sampled or graded."""

from __future__ import annotations

from pathlib import Path

from rtl_core.cards.card import (
    OF_RUN,
    Card,
    Protocol,
    derived,
    labels_of,
    read_card,
    verdicts_path,
)
from rtl_core.cards.rendering import FORMS
from rtl_core.cards.settings import departures, settings_of
from rtl_core.config import RunConfig
from rtl_core.cost.tokens import load_prices, total_dollars
from rtl_core.errors import ConfigError
from rtl_core.history.export import write_lines
from rtl_core.history.records import EvaluationRecord
from rtl_core.history.store import History
from rtl_core.observe.usage import spent_in_evaluation
from rtl_core.reporting.evaluations import by_name, cost_of, counts_of, scheduled_evaluations
from rtl_core.rollouts.resumable import problems_as_recorded
from rtl_core.rollouts.verdict_records import records_of
from rtl_core.run.folder import config_of
from rtl_grader.digest import sha256_of
from rtl_grader.files import replacing
from rtl_grader.grading.verdict_record import Record
from rtl_grader.problems.errata import edited

_SAMPLING = {"samples", "temperature", "top_p", "max_tokens"}
"""Settings of sampling that may be an evaluation's own."""


def check_path(path: Path, *of: str) -> None:
    """Check that a card can be written here. `of`: its run, and when the evaluation finished, as far as known.

    Raises ConfigError if no card can have this name, or it is that of another evaluation, and ProblemError or
    ConfigError if the card would replace a file that is no card.
    """
    if path.suffix not in FORMS:
        raise ConfigError(f"--card {path}: unknown form", f"end it in {', '.join(FORMS)}")
    file = path.with_suffix(".json")
    if file.exists():
        there, _ = read_card(file)
        theirs = str(there.model.get("run")), str(there.provenance.get("finished"))
        if theirs[: len(of)] != of:
            raise ConfigError(
                f"{file} is the card of another evaluation: run {theirs[0]}, finished {theirs[1]}",
                "name another file with --card",
            )
    elif path.exists():
        raise ConfigError(f"{path} is no card", "name another file with --card")


def write_cards(
    history: History, which: str, path: Path, protocol: Path | None = None
) -> list[Path]:
    """Write the card of an evaluation, and its verdict records. Returns the files.

    Args:
        which: key of the evaluation; or a run that evaluates a model, whose single attempts have a card of their own
            beside that of its episodes.
        protocol: the file that it followed; None: the settings of its run.

    Raises:
        HistoryError: the history has no such finished evaluation, or has lost a problem.
        ConfigError: the run's configuration cannot be used here, or as for `check_path`.
    """
    one = history.evaluation(which)
    records = (
        [one] if one else scheduled_evaluations(history, which) + _episodes(history, which)
    )
    written: list[Path] = []
    for record in records:
        last = record is records[-1]
        place = path if last else path.with_stem(f"{path.stem}-{record.kind.replace(' ', '-')}")
        check_path(place, record.run, str(record.finished_at))
        card, verdicts = card_of(history, record, protocol)
        files = sorted({place, place.with_suffix(".json")})
        try:
            for file in files:
                with replacing(file) as fresh:
                    fresh.write_text(FORMS[file.suffix](card), encoding="utf-8")
            write_lines(verdicts_path(place), verdicts)
        except OSError as error:
            why = f"--card {place} cannot be written: {error.strerror}"
            raise ConfigError(why, "name another file; nothing is sampled again") from error
        written += [*files, verdicts_path(place)]
    return written


def _episodes(history: History, run: str) -> list[EvaluationRecord]:
    """The finished evaluations of a run that differ from its own only by their turns."""
    done = [one for one in history.evaluations(run) if one.status == "done"]
    return [one for one in done if one.conditions == [f"turns {one.turns}"]]


def card_of(
    history: History, record: EvaluationRecord, protocol: Path | None
) -> tuple[Card, list[Record]]:
    """The card of a finished evaluation, and its verdict records."""
    run, config = history.existing_run(record.run), config_of(history, record.run)
    problems = problems_as_recorded(history, record.run, counts_of(history, record))
    records = [
        one for one in records_of(history, record.run, record.key) if one["id"] in problems
    ]
    labels = {
        name: labels_of(problem, record.errata.get(name, ""))
        for name, problem in problems.items()
    }
    cost = cost_of(history, record)
    card = Card(
        model=_model(config, record),
        protocol=_protocol(config, record, protocol),
        left_out=by_name(record),
        spent={
            "answers": cost["answers"],
            "answers refused by the endpoint": cost["refused"],
            "tokens of an answer, mean": cost["tokens"] or None,
            "turns of an answer, mean": cost["turns"],
            "usd": _dollars(history, record, config),
        },
        provenance={
            "finished": str(record.finished_at),
            "split": record.split,
            "seed of sampling": run.seed,
            "each answer has its seed": config.sampling.seeded,
            "versions": run.versions,
            "data": edited(problems.values()),
        },
        **derived(records, labels, {1, *record.pass_at_k}),
    )
    return card, records


def _model(config: RunConfig, record: EvaluationRecord) -> dict[str, str | int]:
    """Names of the model, but no address: a card is to be published."""
    tinker, section = config.tinker, config.evaluation
    name = tinker.student if record.policy == "student" else str(tinker.teacher)
    service = "the embedded service" if tinker.is_embedded(name) else "a service"
    trained = {"policy": record.policy, "train steps": record.step}
    return {
        "name": name,
        "weights": section.weights or "",
        "served by": "an endpoint" if section.endpoint else service,
        "run": record.run,
        **(trained if config.run.purpose == "train" else {}),
    }


def _dollars(history: History, record: EvaluationRecord, config: RunConfig) -> float | None:
    if config.evaluation.endpoint:  # its prices are not known
        return None
    usage = spent_in_evaluation(history, record, config)
    return total_dollars(usage, load_prices(config.cost.prices))


def _protocol(config: RunConfig, record: EvaluationRecord, file: Path | None) -> Protocol:
    settings = {**settings_of(config), "conditions": record.conditions}
    if record.kind == "single attempt":
        del settings["episode"]
    own = record.model_dump(include=_SAMPLING, exclude_none=True)
    settings["evaluation"].update(own)
    if record.template:
        settings["prompting"]["template"] = record.template
    return Protocol(
        name=file.stem if file else OF_RUN,
        hash=sha256_of(settings),
        departs=departures(settings, file) if file else [],
        settings=settings,
    )
