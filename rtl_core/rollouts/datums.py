"""Input of the train step: each answer's credit, computed once when its group is graded, and the datums of a batch."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from localtinker.losses import LOSSES, RATIO_MASK
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
from rtl_core.rollouts.batch import Batch, reader_of
from rtl_core.run.recorder import Recorder
from rtl_core.run.session import Session
from rtl_core.types.numbers import Floats
from rtl_core.types.rollout import Rollout
from rtl_core.types.tokenizer import TokenIds
from rtl_grader.extraction.answer_to import masked_piece, response_of
from rtl_grader.types.problem import Problem

Decode = Callable[[TokenIds], str]


def algorithm_of(config: RunConfig, batch: Batch, problem_id: str = "") -> Algorithm:
    """Return the algorithm that trains a problem of a batch: the warm start's, that of the problem's source, or
    else the run's."""
    if batch.purpose == "warm_start":
        return WarmStart(config)
    return chosen(config)[batch.algorithms.get(problem_id, config.learning.algorithm)](config)


def credit_group(config: RunConfig, recorder: Recorder, batch: Batch, problem_id: str) -> None:
    """Compute and record the credit of the answers to one problem of a train step. Quarantined problems get none.

    Raises:
        RuntimeError: an answer has no verdict.
    """
    if batch.purpose in ("train", "warm_start") and problem_id not in batch.quarantined:
        algorithm = algorithm_of(config, batch, problem_id)
        credits = compute_credit(batch, problem_id, algorithm)
        recorder.put("record_advantages", credits)


def compute_credit(
    batch: Batch, problem_id: str, algorithm: Algorithm
) -> list[tuple[str, Credit]]:
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


def scaled_answers(batch: Batch, algorithm: Algorithm) -> list[tuple[StoredRollout, Algorithm]]:
    """Return the answers of `trained_answers`, each with the algorithm of its problem (`algorithm` unless its
    source has its own), and its advantage as it is trained on: divided by that algorithm's divisor."""
    config = algorithm.config
    divisors = divisors_of(batch, config)
    algorithms = {name: kind(config) for name, kind in chosen(config).items()}
    algorithms[config.learning.algorithm] = algorithm
    rows = []
    for name, stored in _by_algorithm(batch, config):
        credit = credit_of(stored)
        advantage = credit.advantage / divisors.get(name, 1.0)
        scaled = replace(stored, credit=replace(credit, advantage=advantage))
        rows.append((scaled, algorithms[name]))
    return rows


def divisors_of(batch: Batch, config: RunConfig) -> dict[str, float]:
    """Mapping of algorithm to the divisor of its advantages in a step, for those that normalise the batch: the
    standard deviation over the answers that are part of the loss, without `reward_weight`. None of 0."""
    classes, weight = chosen(config), config.learning.reward_weight
    advantages: dict[str, list[float]] = defaultdict(list)
    for name, stored in _by_algorithm(batch, config):
        if batch.purpose == "train" and classes[name].normalises_batch:
            advantages[name].append(credit_of(stored).advantage)
    spreads = {name: float(np.std(values)) for name, values in advantages.items()}
    return {name: spread / weight for name, spread in spreads.items() if spread}


def algorithm_metrics(batch: Batch, config: RunConfig) -> dict[str, float]:
    """Metrics of a step that say which algorithm trained on how many answers, and by what it divided their
    advantages; empty with a single algorithm that does not divide them."""
    divisors = divisors_of(batch, config).items()
    metrics = {f"algorithm/{name}/divisor": divisor for name, divisor in divisors}
    if config.learning.by_source:
        answers = Counter(name for name, _ in _by_algorithm(batch, config))
        metrics |= {f"algorithm/{name}/answers": float(n) for name, n in answers.items()}
    return metrics


def _by_algorithm(batch: Batch, config: RunConfig) -> Iterator[tuple[str, StoredRollout]]:
    """Yield `trained_answers`, each with the name of the algorithm that trains it."""
    for stored in trained_answers(batch):
        yield batch.algorithms.get(stored.rollout.problem_id, config.learning.algorithm), stored


def build_datums(
    batch: Batch, algorithm: Algorithm, kl_weight: float, decode: Decode | None = None
) -> list[Datum]:
    """Return the training data of a batch.

    Only this function decides which rollouts a step trains on. Rollouts whose signal is 0 at every token,
    masked ones and quarantined groups are left out. At tokens from a tool every signal is 0. Equal answers
    to one prompt become one datum (`merge_equal`). Datums and tokens are counted where they are sent
    (`StepResult`).

    Args:
        algorithm: that of problems whose source has none of its own.
        kl_weight: λ of this step.
        decode: the tokenizer's `decode`; `learning.kl_after_error` needs it to find lines.
    """
    learning = algorithm.config.learning
    seed = f"{algorithm.config.run.seed}/{batch.step}"
    algorithms = scaled_answers(batch, algorithm)
    answers = [stored for stored, _ in algorithms]
    if learning.kl_after_error and decode is not None:
        text_of = cache(lambda token: decode([token]))
        answers = [
            replace(stored, heard_from=first_error(stored, answers, text_of))
            for stored in answers
        ]
    has_advantages = "advantages" in algorithm.signals
    if learning.permute_teacher and has_advantages:
        answers = permute_teacher(answers, random.Random(f"permute-teacher/{seed}"))
    rows = [
        (stored, own.loss_inputs(stored, kl_weight))
        for stored, (_, own) in zip(answers, algorithms, strict=True)
    ]
    if learning.permute_advantages and has_advantages:
        rows = permute(rows, random.Random(f"permute/{seed}"))
    equal: dict[tuple[Any, ...], list[Inputs]] = defaultdict(list)
    for stored, inputs in rows:
        rollout = stored.rollout
        signals = {name: inputs[name] for name in algorithm.signals if name in inputs}
        if rollout.own_T:
            signals = {name: values * rollout.sampled_T for name, values in signals.items()}
        if any(values.any() for values in signals.values()):
            choices = stored.teacher and stored.teacher.choices
            key = rollout.prompt_P, rollout.tokens_T, rollout.own_T, id(choices)
            equal[key].append({**inputs, **signals})
    datums = []
    for (prompt_P, tokens_T, own_T, _), all_inputs in equal.items():
        mask_T = np.array(own_T, bool) if own_T else None
        merged = merge_equal(all_inputs, algorithm.signals)
        if RATIO_MASK in LOSSES[learning.loss].required:
            sampled_T = np.ones(len(tokens_T), bool) if mask_T is None else mask_T
            merged[RATIO_MASK] = sampled_T.astype(np.float32)
        datums.append(Datum(prompt_P, tokens_T, merged, own_T=mask_T))
    return datums


def first_error(
    stored: StoredRollout, answers: Sequence[StoredRollout], text_of: Callable[[int], str]
) -> int:
    """Index of the token that starts the first wrong line of an answer (`learning.kl.first_wrong_line`);
    its length if it passed."""
    rollout = stored.rollout
    if stored.passed:
        return len(rollout.tokens_T)
    if stored.verdict is None:
        return 0
    right = {
        other.rollout.tokens_T
        for other in answers
        if other.passed and other.rollout.prompt_P == rollout.prompt_P
    }
    right_lines = [_lines(tokens_T, text_of)[0] for tokens_T in sorted(right)]
    lines, starts = _lines(rollout.tokens_T, text_of)
    return starts[first_wrong_line(lines, right_lines)]


def _lines(tokens_T: TokenIds, text_of: Callable[[int], str]) -> tuple[list[str], list[int]]:
    """Return the stripped lines of an answer, and the index of the token that starts each."""
    lines, starts = [""], [0]
    for index, token in enumerate(tokens_T, 1):
        text = text_of(token)
        lines[-1] += text
        if "\n" in text:
            lines.append("")
            starts.append(index)
    return [line.strip() for line in lines], starts


def trainer_tokens(
    batch: Batch, datums: Sequence[Datum], logprobs: Logprobs
) -> list[tuple[Rollout, Floats]]:
    """Return every answer that datums train on, with the trainer's log-probabilities of its tokens, (T,); 0
    at tokens from tools."""
    by_text = {}
    for datum, values_T in zip(datums, logprobs, strict=True):
        by_text[datum.prompt_P, datum.tokens_T] = values_T
    rows = []
    for stored in trained_answers(batch):
        rollout = stored.rollout
        trainer_T = by_text.get((rollout.prompt_P, rollout.tokens_T))
        if trainer_T is not None:
            rows.append((rollout, np.where(rollout.sampled_T, trainer_T, 0.0)))
    return rows


def merge_equal(equal: Sequence[Inputs], signals: Sequence[str]) -> Inputs:
    """Merge the loss inputs of equal answers into one: the sum of each signal, the mean of everything else.

    Every loss is linear in the signals and a sum over answers, so the gradient stays the same.
    """
    merged = {}
    for name, first in equal[0].items():
        merge = np.sum if name in signals else np.mean
        merged[name] = merge([inputs[name] for inputs in equal], axis=0, dtype=first.dtype)
    return merged


def signal_share(batch: Batch, config: RunConfig, kl_weight: float) -> float:
    """Share of a batch's training signal that comes from the teacher's scores, the rest being the verdicts'
    (`learning.advantage.kl_share`).

    Computed on the sampled tokens, also for distributions, and as if `kl_after_error` were off.
    """
    rows = []
    for stored, own in scaled_answers(batch, algorithm_of(config, batch)):
        grpo = own if isinstance(own, Grpo) else Grpo(config)
        from_teacher_T = grpo.advantages_T(stored, 0.0, grpo.kl_weight_of(stored, kl_weight))
        # At tokens from a tool the log-probability is 0: they are certain and do not count.
        logprobs_T = np.array(stored.rollout.logprobs_T)
        rows.append((credit_of(stored).advantage, from_teacher_T, logprobs_T))
    return kl_share(rows)


def trained_answers(batch: Batch) -> Iterator[StoredRollout]:
    """Yield every answer of a credited batch that is part of the loss; empty answers are not."""
    for problem_id in batch.problem_ids:
        if problem_id in batch.quarantined:
            continue
        for stored in batch.group(problem_id):
            if stored.rollout.tokens_T and credit_of(stored).counts:
                yield stored


def permute(
    rows: list[tuple[StoredRollout, Inputs]], rng: random.Random
) -> list[tuple[StoredRollout, Inputs]]:
    """Give each rollout the mean token advantage of another: size and spread of the signal stay, its
    meaning is lost."""
    means = [
        float(inputs["advantages"][stored.rollout.sampled_T].mean()) for stored, inputs in rows
    ]
    rng.shuffle(means)
    permuted = []
    for (stored, inputs), mean in zip(rows, means, strict=True):
        advantages_T = np.full(len(inputs["advantages"]), mean, np.float32)
        permuted.append((stored, {**inputs, "advantages": advantages_T}))
    return permuted


def permute_teacher(answers: list[StoredRollout], rng: random.Random) -> list[StoredRollout]:
    """Give each scored answer the differences q − s, and the choices, of another one, token by token; none
    keeps its own.

    The other answer is to another problem, unless more than half of the answers are to one. A longer one is
    truncated; past the end of a shorter one the difference is 0, and its choices start over.
    """
    scored = [index for index, stored in enumerate(answers) if stored.teacher is not None]
    rng.shuffle(scored)
    problem_of = [stored.rollout.problem_id for stored in answers]
    counts = Counter(problem_of[index] for index in scored)
    place = {problem_id: at for at, problem_id in enumerate(counts)}
    scored.sort(key=lambda index: place[problem_of[index]])
    # The blocks of each problem's answers are shifted by the size of the largest, so none is mapped to itself.
    shift = max(counts.values(), default=0)
    shift = shift if 2 * shift <= len(scored) else 1
    shifted = [*scored[shift:], *scored[:shift]]
    permuted = list(answers)
    for index, other in zip(scored, shifted, strict=True):
        permuted[index] = _with_scores_of(answers[index], answers[other])
    return permuted


def _with_scores_of(stored: StoredRollout, other: StoredRollout) -> StoredRollout:
    """Give an answer the differences q − s and the choices of another; none if the other is itself."""
    own, teacher = stored.teacher, other.teacher
    assert own is not None
    assert teacher is not None
    scores_T = np.array(stored.rollout.logprobs_T, np.float64)
    if stored is other:  # a single scored answer gets no scores
        return replace(stored, teacher=replace(own, logprobs_T=scores_T, choices=None))
    other_T = np.subtract(teacher.logprobs_T, other.rollout.logprobs_T)[: len(scores_T)]
    scores_T[: len(other_T)] += other_T
    choices = teacher.choices
    if choices is not None:
        shape = (len(scores_T), choices.tokens_TK.shape[1])
        tokens_TK = np.resize(choices.tokens_TK, shape)
        choices = Choices(tokens_TK, np.resize(choices.logprobs_TK, shape))
    return replace(stored, teacher=replace(own, logprobs_T=scores_T, choices=choices))


def golden_response(problem: Problem) -> str:
    """Return the known-good answer in the form of a model's response, which extraction/response.py reads: of a
    masked file the part alone."""
    piece = masked_piece(problem)
    if piece is not None:
        return f"```verilog\n{piece}\n```"
    files = (
        {target: problem.golden[target] for target in problem.targets} if problem.golden else {}
    )
    if len(files) == 1:
        (text,) = files.values()
        return f"```verilog\n{text.rstrip()}\n```"
    return response_of(files)


def datums_to_imitate(session: Session, batch: Batch) -> list[Datum]:
    """Return the data of a supervised step: complete turns of the student, the distinct ones of each problem.

    Turns that exceed `sampling.max_tokens` are left out.
    """
    datums = []
    for problem_id in batch.problem_ids:
        prompt_P = session.prompts[problem_id].tokens_P
        for tokens_T in dict.fromkeys(_turns_to_imitate(session, batch, problem_id)):
            if 0 < len(tokens_T) <= session.config.sampling.max_tokens:
                datums.append(Datum(prompt_P, tokens_T, WarmStart.inputs_of(len(tokens_T))))
    return datums


def _turns_to_imitate(
    session: Session, batch: Batch, problem_id: str
) -> Iterator[tuple[int, ...]]:
    """Yield the student's turn with the known-good answer, or those with the answers of the batch that count.
    The tokens of a teacher that has the student's are such a turn; other models' text becomes one, unless it
    contains text like the end of a turn."""
    chat = session.policy.chat
    if session.config.learning.imitates_golden:
        yield tuple(chat.tokens_of(golden_response(session.problems[problem_id])))
        return
    if problem_id in batch.quarantined:
        return
    has_tokens = batch.sampler == "teacher" and reader_of(session, batch, problem_id) is None
    for stored in batch.group(problem_id):
        text = stored.rollout.text
        if not credit_of(stored).counts:
            continue
        if has_tokens:
            yield stored.rollout.tokens_T
        elif not set(chat.stop) & set(chat.tokens_of_frame(text)):
            yield tuple(chat.turn_of(text))
