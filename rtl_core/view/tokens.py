"""Overlays of an answer's tokens; an overlay without stored data explains why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rtl_core.algorithms.base import chosen
from rtl_core.history.records import StoredRollout
from rtl_core.history.store import History
from rtl_core.learning.kl import k1
from rtl_core.run.folder import config_of
from rtl_core.types.numbers import Floats

MOST = 3_000
"""Maximum tokens per page."""
SHADES = (0.05, 0.2, 0.6, 1.2, 2.5)
"""Lower limits of the shades, in nats."""

_SOURCE = "SELECT source FROM run_problems WHERE run = ? AND problem_id = ?"
NOT_TRAINED_ON = "not recorded, because the answer was not trained on (or not yet)"


@dataclass(frozen=True)
class Overlay:
    """A value for each of the T tokens, or the reason why it is missing. Positive values are red and
    negative ones blue; `good` swaps them."""

    name: str
    title: str
    about: str
    values: Floats | None = None
    missing: str = ""
    good: bool = False
    shades: tuple[float, ...] = SHADES

    def shade(self, value: float) -> str:
        """The CSS class of a token."""
        depth = sum(abs(value) >= limit for limit in self.shades)
        if not depth or not math.isfinite(value):
            return ""
        return f"{'up' if (value > 0) != self.good else 'down'}{depth}"

    def legend(self) -> list[tuple[str, str]]:
        """(CSS class, label) of each possible shade, lowest value first."""
        high, low = ("down", "up") if self.good else ("up", "down")
        limits = [(i, f"{limit:.2g}") for i, limit in enumerate(self.shades, 1)]
        above = [(f"{high}{i}", f"≥ {limit}") for i, limit in limits]
        if self.values is None or not (self.values < 0).any():
            return above
        return [(f"{low}{i}", f"≤ −{limit}") for i, limit in reversed(limits)] + above


@dataclass(frozen=True)
class Token:
    """A token as displayed; `words` is its tooltip."""

    text: str
    shade: str
    words: str


def overlays(
    history: History, stored: StoredRollout, metrics: Mapping[str, float]
) -> dict[str, Overlay]:
    """All overlays of a rollout by name; `metrics` are the metrics of its step."""
    student_T = np.asarray(stored.rollout.logprobs_T, np.float64)
    kl = Overlay(
        "kl",
        "teacher KL",
        "k1 = log p(student) − log p(teacher), in nats; red: the student gives the token a higher "
        "probability than the teacher",
    )
    if stored.teacher is None:
        kl = replace(kl, missing="the teacher has not scored this answer")
    else:
        kl = replace(
            kl, values=k1(student_T, np.asarray(stored.teacher.logprobs_T, np.float64))
        )
    about = "−log p(student) of the sampled token, in nats; its mean is the entropy of a step (optim/entropy)"
    surprise = Overlay("surprise", "surprise", about, values=-student_T)
    overlays = (
        kl,
        _advantage(history, stored, metrics),
        surprise,
        _mask(stored),
        _mismatch(history, stored),
    )
    return {overlay.name: overlay for overlay in overlays}


def numbers(tokens: Sequence[int]) -> list[str]:
    """The texts of tokens without a tokenizer."""
    return [f"#{token} " for token in tokens]


def teacher_choices(
    history: History, key: str, texts_of: Callable[[list[int]], Sequence[str] | None]
) -> dict[int, str]:
    """Mapping of position to the teacher's first choices in words, for the tokens of a rollout at which
    they are stored."""
    sql = "SELECT position, tokens, logprobs FROM teacher_choices WHERE rollout = ? ORDER BY position"
    choices = {}
    for row in history.rows(sql, [key]):
        texts = texts_of(row["tokens"]) or numbers(row["tokens"])
        pairs = zip(texts, map(math.exp, row["logprobs"]), strict=True)
        words = "; or ".join(f"`{text}`, {p:.2f}" for text, p in pairs)
        choices[row["position"]] = f"the teacher would have written {words}"
    return choices


def _advantage(
    history: History, stored: StoredRollout, metrics: Mapping[str, float]
) -> Overlay:
    """The advantage of each token, computed by the run's own algorithm with the λ that the step recorded."""
    bare = Overlay(
        "advantage",
        "advantage",
        "the token's advantage in the loss: reward relative to the group, minus λ times the KL "
        "(with distributions only the reward); blue increases its probability, red decreases it",
        good=True,
    )
    if stored.credit is None:
        return replace(bare, missing=NOT_TRAINED_ON)
    if not stored.credit.counts:
        return replace(bare, missing="the answer was masked and is not part of the loss")
    if stored.rollout.purpose == "warm_start":
        return replace(
            bare, missing="a warm start imitates the answer; every token has the weight 1"
        )
    weight = metrics.get("learning/kl_weight")
    if weight is None:
        why = f"λ of step {stored.rollout.step} is not recorded: the step has not been trained yet"
        return replace(bare, missing=why)
    try:
        config = config_of(history, stored.rollout.run)
        for control in ("permute_advantages", "permute_teacher"):
            if getattr(config.learning, control):
                why = f"learning.{control} gave each answer the signal of another one, and which one is not stored"
                return replace(bare, missing=why)
        source = history.column(_SOURCE, [stored.rollout.run, stored.rollout.problem_id])
        name = config.learning.algorithm_of(next(iter(source), None))
        divisor = metrics.get(f"algorithm/{name}/divisor", 1.0)
        advantage = stored.credit.advantage / divisor
        stored = replace(stored, credit=replace(stored.credit, advantage=advantage))
        algorithm = chosen(config)[name](config)
        values_T = np.asarray(algorithm.loss_inputs(stored, weight)["advantages"], np.float64)
        values_T *= stored.rollout.sampled_T  # as build_datums does
    except Exception as error:  # the algorithm may be the user's own
        return replace(bare, missing=f"the run's algorithm cannot be used here: {error}")
    most = float(np.abs(values_T).max(initial=0.0)) or 1.0
    return replace(
        bare,
        values=values_T,
        shades=tuple(most * share for share in (0.02, 0.2, 0.4, 0.6, 0.8)),
    )


def _mask(stored: StoredRollout) -> Overlay:
    bare = Overlay(
        "mask",
        "loss mask",
        "blue tokens are in the loss; the prompt and what tools gave never are",
        shades=(0.5,),
    )
    if stored.credit is None:
        return replace(bare, missing=NOT_TRAINED_ON)
    return replace(
        bare, values=np.where(stored.rollout.sampled_T & stored.credit.counts, -1.0, 0.0)
    )


def _mismatch(history: History, stored: StoredRollout) -> Overlay:
    bare = Overlay(
        "mismatch",
        "trainer–sampler mismatch",
        "log p(sampler) − log p(trainer) before the step that trained on it, in nats",
    )
    sql = "SELECT logprobs_T FROM trainer_tokens WHERE rollout = ?"
    trainer = history.column(sql, [stored.rollout.key])
    if not trainer:
        return replace(bare, missing=NOT_TRAINED_ON)
    values_T = np.subtract(stored.rollout.logprobs_T, trainer[0], dtype=np.float64)
    return replace(bare, values=values_T)


def tokens_from(
    stored: StoredRollout,
    overlays: Mapping[str, Overlay],
    name: str,
    texts: Sequence[str],
    choices: Mapping[int, str],
    start: int = 0,
) -> list[Token]:
    """At most `MOST` tokens from `start` on, shaded by one overlay; tooltips show the values of all
    overlays and the teacher's choices."""
    s_T = stored.rollout.logprobs_T
    shading = overlays[name]
    rows = []
    for i in range(start, min(len(s_T), start + MOST)):
        words = [
            f"token {i}, number {stored.rollout.tokens_T[i]}",
            f"p student {math.exp(s_T[i]):.3f}",
        ]
        if stored.teacher is not None:
            words.append(f"p teacher {math.exp(stored.teacher.logprobs_T[i]):.3f}")
        for overlay in overlays.values():
            if overlay.values is not None and overlay.name not in ("mask", "surprise"):
                words.append(f"{overlay.title} {overlay.values[i]:+z.3f}")
        words += [choices[i]] if i in choices else []
        shade = "" if shading.values is None else shading.shade(float(shading.values[i]))
        rows.append(Token(texts[i], shade, "\n".join(words)))
    return rows


def read_by_teacher(stored: StoredRollout, kl: Overlay, texts: Sequence[str]) -> list[Token]:
    """The answer in the tokens of a teacher with other tokens, at most `MOST`, shaded by the KL of their span. `texts`
    are theirs."""
    if stored.teacher is None or stored.teacher.reading is None or kl.values is None:
        return []
    read = stored.teacher.reading
    kl_U = np.full(len(read.tokens_U), np.nan)
    for t, t_end, u, u_end in read.spans_S4.tolist():
        kl_U[u:u_end] = kl.values[t:t_end].sum()
    rows = []
    for at, text in enumerate(texts[:MOST]):
        within = "in no span" if np.isnan(kl_U[at]) else f"KL of the span {kl_U[at]:+z.3f}"
        words = f"p teacher {math.exp(read.logprobs_U[at]):.3f}, {within}"
        rows.append(Token(text, kl.shade(float(kl_U[at])), words))
    return rows


def strongest(
    overlays: Mapping[str, Overlay], name: str, texts: Sequence[str], most: int = 6
) -> list[tuple[int, str, float]]:
    """The tokens with the largest absolute values of an overlay, ordered by position: (position, text, value)."""
    values = overlays[name].values
    if values is None or name == "mask":
        return []
    places = sorted(np.argsort(-np.abs(values))[:most].tolist())
    return [(i, texts[i], float(values[i])) for i in places]
