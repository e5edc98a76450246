"""The report's figures for the pages: each point links to the step, the evaluation or the answers that it
stands for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rtl_core.reporting.blocks import Block, Figure, Source, draw
from rtl_core.reporting.figures import by_problem, compare, health, learning
from rtl_core.reporting.figures.held_out import Against, held_out
from rtl_core.reporting.theme import Spec
from rtl_core.view.links import link


def curves(sources: list[Source], against: Against) -> list[Block]:
    """Held-out pass@1, reward, pass rate and KL, one line per run; for a single run also the raw curves, lighter."""
    by_step = (partial(compared, quantity=quantity) for quantity in compare.CURVES)
    return draw(sources, partial(evaluated, against=against), *by_step)


def pictures(source: Source) -> list[Block]:
    """A run's problems, rewards, lengths of answers, loss and gradient norm."""
    by_step = (health.length, health.loss, health.gradient_norm)
    of_steps = (partial(stepped, build=build) for build in by_step)
    return draw(source, problems, learning.rewards, *of_steps)


def evaluated(sources: list[Source], against: Against) -> Figure:
    """Held-out pass@1; each point opens its evaluation."""
    words = "step %{x}: " if against == "step" else "%{x}: "
    return _linked(
        held_out(sources, against),
        words,
        lambda trace, i: link("/step", run=trace["meta"], evaluation=trace["ids"][i]),
    )


def compared(sources: list[Source], quantity: compare.Quantity) -> Figure:
    """A curve of the report's comparison; each point opens its step."""
    return _steps(compare.by_step(sources, quantity), sources[0].run)


def stepped(source: Source, build: Callable[[Source], Figure]) -> Figure:
    """A figure of the report by step; each point opens its step."""
    return _steps(build(source), source.run)


def problems(source: Source) -> Figure | None:
    """The report's dots of problems; each opens the answers after training."""
    figure = by_problem.by_problem(source)
    return figure and _linked(
        figure,
        "",
        lambda trace, i: link(
            "/group", run=source.run, problem=trace["ids"][i], evaluation=trace["meta"]
        ),
    )


def outcomes(source: Source) -> Figure:
    """The report's outcomes of training answers; each bar opens its answers."""
    half = (source.width() - 1) / 2

    def answers(trace: Spec, i: int) -> str:
        step = f"{trace['x'][i] - half:.0f}-{trace['x'][i] + half:.0f}"
        return link(
            "/rollouts", run=source.run, step=step, outcome=trace["meta"], purpose="train"
        )

    return _linked(learning.outcomes(source), "step %{x}: ", answers)


def _steps(figure: Figure, run: str) -> Figure:
    for trace in figure.data:
        if trace.get("hovertemplate"):
            trace.update(mode="lines+markers", marker={"size": 5})
    return _linked(
        figure,
        "step %{x}: ",
        lambda trace, i: link("/step", run=trace.get("meta", run), step=round(trace["x"][i])),
    )


def _linked(figure: Figure, words: str, address: Callable[[Spec, int], str]) -> Figure:
    """Give each point that has a tooltip the URL that a click opens (static/charts.js), and `words` before its
    tooltip."""
    for trace in figure.data:
        if hover := trace.get("hovertemplate"):
            trace["hovertemplate"] = words + hover
            trace["links"] = [address(trace, i) for i in range(len(trace["x"]))]
    return figure
