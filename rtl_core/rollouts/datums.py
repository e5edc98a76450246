"""Input of the train step: each answer's credit, computed once when its group is graded, and the datums of a batch."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from rtl_core.algorithms.base import Algorithm, Group, Inputs, chosen, credit_of
from rtl_core.algorithms.grpo import Grpo
from rtl_core.algorithms.warm_start import WarmStart
from rtl_core.backend.base import Datum, Logprobs
from rtl_core.config import RunConfig
from rtl_core.history.records import StoredRollout
from rtl_core.learning.advantage import kl_share
from rtl_core.learning.credit import Credit
from rtl_core.learning.distributions import Choices
from rtl_core.learning.kl import first_wrong_line
from rtl_core.rollouts.batch import Batch
from rtl_core.run.session import Session
from rtl_core.types.rollout import Rollout
from rtl_grader.extraction.answer_to import response_of
from rtl_grader.types.problem import Problem

Decode = Callable[[Sequence[int]], str]


def algorithm_of(config: RunConfig, batch: Batch) -> Algorithm:
    """Return the algorithm that trains a batch: the run's, or the warm start's."""
    return WarmStart(config) if batch.purpose == "warm_start" else chosen(config)(config)


def credit_group(session: Session, batch: Batch, problem_id: str) -> None:
    """Compute and record the credit of the answers to one problem of a train step. Quarantined problems get none.

    Raises:
        RuntimeError: an answer has no verdict.
    """
    if batch.purpose in ("train", "warm_start") and problem_id not in batch.quarantined:
        session.recorder.put(
            "record_advantages", credited(batch, problem_id, algorithm_of(session.config, batch))
        )


def credited(batch: Batch, problem_id: str, algorithm: Algorithm) -> list[tuple[str, Credit]]:
    """Credit the answers to one problem. Returns (rollout key, credit) of each."""
    rows = []
    group = batch.group(problem_id)
    for stored, credit in zip(group, algorithm.credit(Group(group)).answers(), strict=True):
        batch.update(stored, credit=credit)
        rows.append((stored.rollout.key, credit))
    return rows


def has_signal(batch: Batch, problem_id: str) -> bool:
    """Whether some advantage of a credited group is not 0."""
    return any(credit_of(stored).advantage for stored in batch.group(problem_id))


def build_datums(
    batch: Batch, algorithm: Algorithm, kl_weight: float, decode: Decode | None = None
) -> list[Datum]:
    """Return the training data of a batch.

    Only this function decides which rollouts a step trains on. Rollouts whose signal is 0 at every token,
    masked ones and quarantined groups are left out. At tokens from a tool every signal is 0. Equal answers
    to one prompt become one datum (`merge_equal`). Datums and tokens are counted where they are sent
    (`StepResult`).

    Args:
        kl_weight: λ of this step.
        decode: the tokenizer's `decode`; `learning.kl_after_error` needs it to find lines.
    """
    config = algorithm.config
    answers = list(trained_answers(batch))
    if config.learning.kl_after_error and decode is not None:
        text_of = cache(lambda token: decode([token]))
        answers = [
            replace(stored, heard_from=first_error(stored, answers, text_of)) for stored in answers
        ]
    if config.learning.permute_teacher and "advantages" in algorithm.signals:
        answers = permute_teacher(
            answers, random.Random(f"permute-teacher/{config.run.seed}/{batch.step}")
        )
    rows = [(stored, algorithm.loss_inputs(stored, kl_weight)) for stored in answers]
    if config.learning.permute_advantages and "advantages" in algorithm.signals:
        rows = permute(rows, random.Random(f"permute/{config.run.seed}/{batch.step}"))
    equal: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[bool, ...], int], list[Inputs]] = (
        defaultdict(list)
    )
    for stored, inputs in rows:
        rollout = stored.rollout
        if rollout.own_T:
            signals = {
                name: inputs[name] * rollout.sampled_T
                for name in algorithm.signals
                if name in inputs
            }
            inputs = {**inputs, **signals}
        if any(inputs[signal].any() for signal in algorithm.signals if signal in inputs):
            choices = 0 if stored.teacher is None else id(stored.teacher.choices)
            equal[rollout.prompt_P, rollout.tokens_T, rollout.own_T, choices].append(inputs)
    return [
        Datum(
            prompt_P,
            tokens_T,
            merge_equal(all_, algorithm.signals),
            own_T=np.array(own_T, bool) if own_T else None,
        )
        for (prompt_P, tokens_T, own_T, _), all_ in equal.items()
    ]


def first_error(
    stored: StoredRollout, answers: Sequence[StoredRollout], text_of: Callable[[int], str]
) -> int:
    """Index of the token that starts the first wrong line of an answer (`learning.kl.first_wrong_line`);
    its length if it passed."""

    def lines_of(tokens_T: Sequence[int]) -> tuple[list[str], list[int]]:
        texts = [text_of(token) for token in tokens_T]
        starts = [0, *(at + 1 for at, text in enumerate(texts) if "\n" in text)]
        return [
            "".join(texts[a:b]).strip() for a, b in zip(starts, [*starts[1:], None], strict=True)
        ], starts

    if stored.verdict is None or stored.passed:
        return len(stored.rollout.tokens_T) if stored.passed else 0
    prompt_P = stored.rollout.prompt_P
    right = {
        one.rollout.tokens_T for one in answers if one.passed and one.rollout.prompt_P == prompt_P
    }
    lines, starts = lines_of(stored.rollout.tokens_T)
    return starts[first_wrong_line(lines, [lines_of(tokens_T)[0] for tokens_T in sorted(right)])]


def trainer_tokens(
    batch: Batch, datums: Sequence[Datum], logprobs: Logprobs
) -> list[tuple[Rollout, NDArray[np.float64]]]:
    """Return every answer that datums train on, with the trainer's log-probabilities of its tokens, (T,); 0
    at tokens from tools."""
    found = {
        (d.prompt_P, d.tokens_T): values_T for d, values_T in zip(datums, logprobs, strict=True)
    }
    rows = []
    for rollout in (stored.rollout for stored in trained_answers(batch)):
        values_T = found.get((rollout.prompt_P, rollout.tokens_T))
        if values_T is not None:
            rows.append((rollout, np.where(rollout.sampled_T, values_T, 0.0)))
    return rows


def merge_equal(equal: Sequence[Inputs], signals: Sequence[str]) -> Inputs:
    """Merge the loss inputs of equal answers into one: the sum of each signal, the mean of everything else.

    Every loss is linear in the signals and a sum over answers, so the gradient stays the same.
    """
    return {
        name: (np.sum if name in signals else np.mean)(
            [inputs[name] for inputs in equal], axis=0, dtype=equal[0][name].dtype
        )
        for name in equal[0]
    }


def signal_share(batch: Batch, config: RunConfig, kl_weight: float) -> float:
    """Share of a batch's training signal that comes from the teacher's scores, the rest being the verdicts'
    (`learning.advantage.kl_share`).

    Computed on the sampled tokens, also for distributions, and as if `kl_after_error` were off.
    """
    own = chosen(config)(config)
    grpo = own if isinstance(own, Grpo) else Grpo(config)
    return kl_share(
        (
            credit_of(stored).advantage,
            # At tokens from a tool the log-probability is 0: they are certain and do not count.
            grpo.advantages_T(stored, 0.0, grpo.kl_weight_of(stored, kl_weight)),
            np.array(stored.rollout.logprobs_T),
        )
        for stored in trained_answers(batch)
    )


def trained_answers(batch: Batch) -> Iterator[StoredRollout]:
    """Yield every answer of a credited batch that is part of the loss; empty answers are not."""
    for problem_id in batch.problem_ids:
        if problem_id not in batch.quarantined:
            group = batch.group(problem_id)
            yield from (
                stored for stored in group if stored.rollout.tokens_T and credit_of(stored).counts
            )


def permute(
    rows: list[tuple[StoredRollout, Inputs]], rng: random.Random
) -> list[tuple[StoredRollout, Inputs]]:
    """Give each rollout the mean token advantage of another: size and spread of the signal stay, its
    meaning is lost."""
    means = [
        float(inputs["advantages"][stored.rollout.sampled_T].mean()) for stored, inputs in rows
    ]
    rng.shuffle(means)
    return [
        (stored, {**inputs, "advantages": np.full(len(inputs["advantages"]), mean, np.float32)})
        for (stored, inputs), mean in zip(rows, means, strict=True)
    ]


def permute_teacher(answers: list[StoredRollout], rng: random.Random) -> list[StoredRollout]:
    """Give each scored answer the differences q − s, and the choices, of another one, token by token; none
    keeps its own.

    The other answer is to another problem, unless more than half of the answers are to one. A longer one is
    truncated; past the end of a shorter one the difference is 0, and its choices start over.
    """
    scored = [index for index, stored in enumerate(answers) if stored.teacher is not None]
    rng.shuffle(scored)
    counts = Counter(answers[index].rollout.problem_id for index in scored)
    place = {problem_id: at for at, problem_id in enumerate(counts)}
    scored.sort(key=lambda index: place[answers[index].rollout.problem_id])
    # The blocks of each problem's answers are shifted by the size of the largest, so none is mapped to itself.
    shift = max(counts.values(), default=0)
    shift = shift if 2 * shift <= len(scored) else 1
    found = list(answers)
    for index, other in zip(scored, [*scored[shift:], *scored[:shift]], strict=True):
        stored, given, teacher = answers[index], answers[other], answers[other].teacher
        scores_T = np.array(stored.rollout.logprobs_T, np.float64)
        assert teacher is not None
        assert stored.teacher is not None
        choices = None
        if index != other:  # a single scored answer gets no scores
            other_T = np.subtract(teacher.logprobs_T, given.rollout.logprobs_T)[: len(scores_T)]
            scores_T[: len(other_T)] += other_T
            if teacher.choices is not None:
                shape = (len(scores_T), teacher.choices.tokens_TK.shape[1])
                choices = Choices(
                    np.resize(teacher.choices.tokens_TK, shape),
                    np.resize(teacher.choices.logprobs_TK, shape),
                )
        found[index] = replace(
            stored, teacher=replace(stored.teacher, logprobs_T=scores_T, choices=choices)
        )
    return found


def golden_response(problem: Problem) -> str:
    """Return the known-good answer in the form of a model's response, which extraction.py reads."""
    files = {target: problem.golden[target] for target in problem.targets} if problem.golden else {}
    if len(files) == 1:
        (text,) = files.values()
        return f"```verilog\n{text.rstrip()}\n```"
    return response_of(files)


def datums_to_imitate(session: Session, batch: Batch) -> list[Datum]:
    """Return the data of a supervised step. A known-good answer is a complete turn: thought closed,
    end-of-turn token included.

    Answers that exceed `sampling.max_tokens` are left out.
    """
    config = session.config
    if config.learning.warm_start_source == "teacher":
        return build_datums(batch, algorithm_of(config, batch), 0.0)
    chat = session.policy.chat
    datums = []
    for problem_id in batch.problem_ids:
        problem = session.problems[problem_id]
        tokens_T = chat.tokens_of(golden_response(problem))
        if len(tokens_T) <= config.sampling.max_tokens:
            datums.append(
                Datum(
                    session.prompts[problem_id].tokens_P,
                    tokens_T,
                    WarmStart.inputs_of(len(tokens_T)),
                )
            )
    return datums
