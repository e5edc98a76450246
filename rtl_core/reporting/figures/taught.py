"""What training taught: do more answers pass because more of them compile, or because more of those are right?"""

from __future__ import annotations

from rtl_core.reporting.blocks import Block, Source, draw
from rtl_core.reporting.figures import SECTIONS, section
from rtl_core.reporting.figures.failure_flow import flow
from rtl_core.reporting.figures.gain_parts import causes, levels


@SECTIONS.register("taught")
@section(
    "What training taught",
    "Do more answers pass because more of them compile, or because more of those are right?",
    place=12,
)
def blocks(source: Source) -> list[Block]:
    return [*draw([source], causes), *draw(source, flow, levels)]
