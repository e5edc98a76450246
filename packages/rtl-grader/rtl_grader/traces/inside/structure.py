"""Whether two netlists are the same but for names and order: then they behave alike in every cycle, whatever
their size. Runs in the sandbox, see `prover.py`.

Signals are coloured (partition refinement). Inputs are coloured by name, constants by value, undriven bits by
their initial value, outputs of cells by the cell's kind, parameters and initial value. Then each cell's
outputs are coloured again by the colours of its inputs until no class is split. What has the same colour at
the end is equal for ever, as in a bisimulation: registers start equal, and equal inputs keep them equal.
There must be no combinational loop and no bit with two drivers.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

MAX_WORK = 20_000_000
"""Colours that are computed before giving up."""
_FREE = ("$anyconst", "$anyseq", "$anyinit", "$allconst", "$allseq")
"""Cells that may give different values for the same inputs."""
Bit = tuple[int, Any]
"""Number of the netlist, and Yosys' number of a net of one bit or a constant."""


class Netlist:
    """A flat netlist, from a file that `write_json` wrote. `number` tells its bits from another's."""

    def __init__(self, path: str, number: int) -> None:
        with open(path) as file:
            (module,) = json.load(file)["modules"].values()
        self._number = number
        self.inputs: dict[Bit, Hashable] = {}
        self.outputs: dict[str, list[Bit]] = {}
        for name, port in module["ports"].items():
            bits = self._bits(port["bits"])
            if port["direction"] == "input":
                self.inputs.update({bit: (name, at) for at, bit in enumerate(bits)})
            else:
                self.outputs[name] = bits
        self.initial = defaultdict[Bit, set[str]](set)
        for net in module["netnames"].values():
            values = reversed(net["attributes"].get("init", ""))
            for bit, value in zip(self._bits(net["bits"]), values, strict=False):
                self.initial[bit] |= {value} - {"x"}
        self.cells = [self._cell(*cell) for cell in module["cells"].items()]
        """(kind, input bits, output bits) of each."""

        self._driven = {bit for _, _, outputs in self.cells for bit in outputs}
        self._driven |= {*self.inputs, *self._bits("01")}

    def idle(self) -> dict[str, str]:
        """The outputs as binary numbers in which a bit is 1 if it never has a value: it has no driver, or is
        constantly `x` or `z`."""
        masks = {}
        for name, bits in self.outputs.items():
            masks[name] = "".join("01"[bit not in self._driven] for bit in reversed(bits))
        return masks

    def reads_nothing(self) -> bool:
        """Whether a cell reads a bit that has no driver."""
        read = {bit for _, inputs, _ in self.cells for bit in inputs}
        return bool(read - self._driven - set(self._bits("xz")))

    def _bits(self, bits: Sequence[Any]) -> list[Bit]:
        return [(self._number, bit) for bit in bits]

    def _cell(
        self, name: str, cell: Mapping[str, Any]
    ) -> tuple[Hashable, list[Bit], list[Bit]]:
        bits: dict[str, list[Bit]] = {"input": [], "output": []}
        widths = []
        for port, direction in sorted(cell["port_directions"].items()):
            connected = self._bits(cell["connections"][port])
            bits[direction] += connected
            widths.append((port, len(connected)))
        settings = {**cell["parameters"], "MEMID": ""}
        kind: Hashable = (cell["type"], json.dumps(settings, sort_keys=True), *widths)
        if cell["type"] in _FREE or "\\" in cell["type"]:
            kind = (self._number, name)
        return kind, bits["input"], bits["output"]


def same_structure(first: Netlist, second: Netlist) -> bool:
    """Whether all outputs of two netlists are equal by their structure."""
    sides = (first, second)
    cells = [cell for side in sides for cell in side.cells]
    colours = _first_colours(sides)
    count, work = 0, 0
    while work < MAX_WORK:
        one, other = (
            {name: [colours[bit] for bit in bits] for name, bits in side.outputs.items()}
            for side in sides
        )
        if one != other:
            return False
        before, count = count, len(set(colours.values()))
        if count == before:
            return True
        work += len(colours)
        colours = _split(colours, cells)
    return False


def _first_colours(sides: Sequence[Netlist]) -> dict[Bit, int]:
    classes: dict[Hashable, int] = {}
    colours: dict[Bit, int] = {}

    def paint(bit: Bit, *kind: Hashable) -> None:
        colours.setdefault(bit, classes.setdefault(kind, len(classes)))

    for side in sides:
        for bit, port in side.inputs.items():
            paint(bit, "input", port)
        for kind, _, outputs in side.cells:
            for at, bit in enumerate(outputs):
                paint(bit, kind, at, *sorted(side.initial[bit]))
        read = [inputs for _, inputs, _ in side.cells] + list(side.outputs.values())
        for bit in (bit for bits in read for bit in bits):
            constant = bit[1] if isinstance(bit[1], str) else ""
            paint(bit, "no driver", constant, *sorted(side.initial[bit]))
    return colours


def _split(
    colours: Mapping[Bit, int], cells: Sequence[tuple[Hashable, list[Bit], list[Bit]]]
) -> dict[Bit, int]:
    """Colour each cell's outputs by their colours before and by those of the cell's inputs."""
    classes: dict[Hashable, int] = {}
    result = {bit: classes.setdefault(colour, len(classes)) for bit, colour in colours.items()}
    for _, inputs, outputs in cells:
        key = tuple(colours[bit] for bit in inputs)
        for bit in outputs:
            both = (colours[bit], key)
            result[bit] = classes.setdefault(both, len(classes))
    return result
