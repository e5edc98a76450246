"""How good is the model on a benchmark? For a run that only evaluates: its figures by category and difficulty."""

from __future__ import annotations

from rtl_core.reporting.benchmark import tables_of
from rtl_core.reporting.blocks import Block, Source
from rtl_core.reporting.figures import SECTIONS, section


@SECTIONS.register("benchmark")
@section(
    "How good is the model?", "The model's answers to every problem, none of which it was trained on here.", place=5
)
def blocks(source: Source) -> list[Block]:
    """pass@k of the evaluation by category and difficulty."""
    return [*tables_of(source.history, source.run)]
