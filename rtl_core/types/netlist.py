"""The size of a design: what synthesis makes of it, without a technology."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Netlist:
    """A design mapped to gates of two inputs, multiplexers, inverters and registers."""

    cells: int
    """All cells, registers included."""
    flip_flops: int
    """Registers of one bit, latches included."""
    levels: int
    """Cells on the longest path without a register."""
    relative_area: float | None = None
    """Cells relative to those of what the design is held against: the golden answer, or the median of the passes that behave alike."""
    relative_levels: float | None = None
    """Levels, likewise."""

    def beside(self, cells: float, levels: float) -> Netlist:
        """The same, relative to so many cells and levels; one is added to both sides, because a design may be wires alone."""
        return replace(
            self, relative_area=(self.cells + 1) / (cells + 1), relative_levels=(self.levels + 1) / (levels + 1)
        )
