"""A rollout for the terminal: problem, answer, verdict, audit, reward by term, KL by token."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from rtl_core.history.columns import Row
from rtl_core.history.records import MessageRecord, StoredRollout
from rtl_core.history.store import History
from rtl_core.learning.credit import Credit
from rtl_core.learning.reward import Reward
from rtl_core.reporting.transcript import transcript_view
from rtl_core.types.rollout import Rollout
from rtl_grader.grading.interface_check import port_in_words
from rtl_grader.types.problem import Interface
from rtl_grader.types.verdict import InterfaceMismatch, Outcome, Verdict
from rtl_grader.words import visible

_SHADES = (
    (0.1, ""),
    (0.5, "on grey30"),
    (1.5, "on dark_orange3"),
    (float("inf"), "bold on red3"),
)
"""(upper limit of |k1| in nats, style of the token)."""
MOST_STEPS = 40
"""Maximum steps of the waveform of an audit."""


_LEVEL = """
SELECT level || CASE WHEN solvable THEN '; another answer' ELSE '; no answer' END || ' of the run solves the problem'
FROM failure_levels WHERE rollout = $key AND run = $run AND step = $step
"""
_AUDIT = """
SELECT *, coalesce(format('{} cells, {} of them flip-flops, {} levels', cells, flip_flops, levels), '')
       || coalesce(format('; relative area {:.2f}, levels {:.2f}', relative_area, relative_levels), '') AS netlist
FROM audits WHERE rollout = $rollout
"""


def level_of(history: History, rollout: Rollout) -> str | None:
    """The kind of failure, and whether another answer of the run solved the problem; None if the answer did
    not fail."""
    words = history.column(_LEVEL, key=rollout.key, run=rollout.run, step=rollout.step)
    return next(iter(words), None)


def rollout_view(
    stored: StoredRollout,
    problem: dict[str, Any] | None,
    pieces: Sequence[str] | None,
    level: str | None = None,
    messages: Sequence[MessageRecord] = (),
) -> RenderableType:
    """Everything about a rollout. `pieces` are the texts of its T tokens, or None without a tokenizer;
    `level` is the result of `level_of`; `messages` are those of its conversation, if it has one."""
    r = stored.rollout
    where = f"epoch {r.epoch + 1}, step {r.step}"
    if r.evaluation is not None:
        where = f"evaluation {r.evaluation}"
    tokens = sum(m.n_tokens for m in messages) or len(r.tokens_T)
    size = f"{tokens} tokens, ended by {r.stop_reason}"
    parts: list[RenderableType] = [
        Text(r.key, style="bold"),
        Text(f"{where}, sample {r.sample}, {size}", style="dim"),
    ]
    if problem is not None:
        parts += [Rule("problem", align="left"), Text(visible(problem.get("prompt", "")))]
    if messages:
        parts += [Rule("conversation", align="left"), transcript_view(messages)]
    text = Syntax(visible(r.text), "markdown", theme="ansi_dark", word_wrap=True)
    parts += [Rule("answer", align="left"), text]
    parts += [Rule("verdict", align="left"), verdict_view(stored.verdict)]
    if level:
        parts.append(Text(f"kind of failure: {level}", style="bold"))
    if stored.verdict and stored.verdict.mismatches and problem and problem.get("interface"):
        table = Table("name", "expected", "got", box=box.SIMPLE_HEAD)
        required = Interface.model_validate(problem["interface"])
        for *texts, wrong in interface_rows(required, stored.verdict.mismatches):
            table.add_row(*map(Text, texts), style="red" if wrong else "")
        parts.append(table)
    if stored.reward:
        parts += [Rule("reward", align="left"), reward_view(stored.reward, stored.credit)]
    if stored.teacher:
        parts += [Rule("KL to the teacher, by token", align="left"), kl_view(stored, pieces)]
    return Group(*parts)


def verdict_view(verdict: Verdict | None) -> RenderableType:
    if verdict is None:
        return Text("not graded yet", style="dim")
    style = "green" if verdict.outcome is Outcome.PASSED else "red"
    head = Text.assemble(
        (verdict.outcome.value.replace("_", " "), f"bold {style}"),
        f"  {verdict.tests_passed} of {verdict.tests_total} tests, {verdict.wall_s:.2f} s by {verdict.executor}",
        ", from the cache" if verdict.cached else "",
    )
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    colours = {"passed": "green", "failed": "red", "skipped": "dim"}
    for stage in verdict.stages:
        reasons = Text("\n".join(visible(reason) for reason in stage.reasons))
        table.add_row(
            stage.stage.value, Text(stage.status, style=colours[stage.status]), reasons
        )
    seen = {reason for stage in verdict.stages for reason in stage.reasons}
    rest = [Text(f"- {visible(reason)}") for reason in verdict.reasons if reason not in seen]
    return Group(head, table, *rest)


class InterfaceRow(NamedTuple):
    """The module, a parameter or a port, as required and as written."""

    name: str
    expected: str
    got: str
    wrong: bool


def interface_rows(
    required: Interface, mismatches: Sequence[InterfaceMismatch]
) -> list[InterfaceRow]:
    """The required module, parameters and ports in order, followed by what the answer has besides."""
    wrong: dict[tuple[str, str], list[InterfaceMismatch]] = defaultdict(list)
    for m in mismatches:
        _, _, what = m.kind.value.rpartition("_")
        wrong[what if what in ("module", "parameter") else "port", m.name].append(m)
    # The ports of a module with another name are not compared.
    other = any(what == "module" for what, _ in wrong)
    demanded = [("module", required.module, required.module)]
    for p in required.parameters:
        default = "" if p.default is None else f" = {p.default}"
        demanded.append(("parameter", p.name, f"parameter{default}"))
    for port in required.ports:
        demanded.append(("port", port.name, port_in_words(port)))
    rows = []
    for what, name, expected in demanded:
        missed = wrong.pop((what, name), [])
        right = "not compared" if other else expected
        got = ", ".join(visible(m.got or "nothing") for m in missed) or right
        label = "module" if what == "module" else name
        rows.append(InterfaceRow(label, expected, got, bool(missed)))
    for m in itertools.chain(*wrong.values()):
        name, expected, got = (
            visible(text or "nothing") for text in (m.name, m.expected, m.got)
        )
        rows.append(InterfaceRow(name, expected, got, True))
    return rows


def reward_view(reward: Reward, credit: Credit | None) -> RenderableType:
    """Weighted terms, total, and the trained reward and advantage."""
    table = Table("term", "weight", "value", "contribution", box=box.SIMPLE_HEAD)
    for column in table.columns[1:]:
        column.justify = "right"
    for term, (weight, value) in reward.terms.items():
        if weight:
            contribution = f"{weight * value:z.3f}"
            table.add_row(term, f"{weight:g}", f"{value:.3g}", contribution)
    table.add_row("total", "", "", f"{reward.total:z.3f}", style="bold")
    if credit is not None:
        table.add_row(
            "trained on" if credit.counts else "masked", "", "", f"{credit.reward:z.3f}"
        )
        table.add_row("advantage in its group", "", "", f"{credit.advantage:+z.3f}")
    return table


def kl_view(stored: StoredRollout, pieces: Sequence[str] | None) -> RenderableType:
    """The answer shaded by |k1|, and the eight tokens on which student and teacher differ most."""
    assert stored.teacher is not None
    s_T = np.asarray(stored.rollout.logprobs_T, np.float64)
    q_T = np.asarray(stored.teacher.logprobs_T, np.float64)
    k_T = s_T - q_T
    texts = list(pieces) if pieces is not None else [f"#{t} " for t in stored.rollout.tokens_T]
    shaded = Text()
    for text, k in zip(texts, k_T, strict=True):
        style = next(style for limit, style in _SHADES if abs(k) < limit)
        shaded.append(visible(text), style=style)
    *below, (_, last) = _SHADES
    limits = [(f" < {limit:g} ", style) for limit, style in below]
    limits.append((f" ≥ {below[-1][0]:g} ", last))
    legend = Text.assemble(
        "k1 = log p(student) − log p(teacher) in nats; |k1| ", *limits, style="dim"
    )
    t = stored.teacher
    k1, k2, k3 = (f"{mean:z.4f}" for mean in (t.k1_mean, t.k2_mean, t.k3_mean))
    means = Text(f"mean k1 {k1}, k2 {k2}, k3 {k3} over {t.n_tokens} tokens")
    table = Table("token", "text", "p student", "p teacher", "k1", box=box.SIMPLE_HEAD)
    for i in sorted(np.argsort(-np.abs(k_T))[:8].tolist()):
        label = Text(repr(visible(texts[i])))
        student, teacher = (f"{np.exp(logprobs_T[i]):.3f}" for logprobs_T in (s_T, q_T))
        table.add_row(str(i), label, student, teacher, f"{k_T[i]:+z.3f}")
    return Group(means, legend, shaded, table)


def audit_of(history: History, rollout: str) -> Row | None:
    """The audit of a pass, with the inputs that show a difference as `waveform` and its size in words as
    `netlist`; None without an audit."""
    for row in history.rows(_AUDIT, rollout=rollout):
        return {**row, "waveform": _waveform(json.loads(row["trace"] or "[]"))}
    return None


def _waveform(trace: Sequence[Mapping[str, int]]) -> str:
    """The last `MOST_STEPS` steps as text: a line per input, a column per step. Values are hexadecimal; a
    dot means no change."""
    steps = list(trace)[-MOST_STEPS:]
    if not steps:
        return ""
    columns, before = [], [""] * len(steps[0])
    for step in steps:
        values = [f"{value:x}" for value in step.values()]
        width = max(map(len, values))
        changes = zip(before, values, strict=True)
        columns.append([f"{'.' if now == was else now:>{width}}" for was, now in changes])
        before = values
    longest = max(map(len, steps[0]))
    earlier = len(trace) - len(steps)
    lines = [f"({earlier} earlier steps)"] if earlier else []
    for name, *row in zip(steps[0], *columns, strict=True):
        lines.append(f"{name:<{longest}}  {' '.join(row)}")
    return "\n".join(lines)
