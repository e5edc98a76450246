"""The size of a design after synthesis without a technology library."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Netlist:
    """Size of a design mapped to two-input gates, multiplexers, inverters and registers."""

    cells: int
    """Number of cells, including registers."""
    flip_flops: int
    """Number of one-bit registers, including latches."""
    levels: int
    """Number of cells on the longest path without a register."""
    relative_area: float | None = None
    """Cells relative to the reference: the golden answer, or the median of the passes that behave alike."""
    relative_levels: float | None = None
    """Levels relative to the same reference."""

    def beside(self, cells: float, levels: float) -> Netlist:
        """Return a copy relative to a reference. Adds 1 to both sides, because a design may consist only of wires."""
        return replace(
            self,
            relative_area=(self.cells + 1) / (cells + 1),
            relative_levels=(self.levels + 1) / (levels + 1),
        )
