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
from itertools import chain
from typing import Any

MAX_WORK = 20_000_000
"""Colours that are computed before giving up."""
_FREE = ("$anyconst", "$anyseq", "$anyinit", "$allconst", "$allseq")
"""Cells that may give different values for the same inputs."""
Bit = tuple[int, Any]
"""Number of the netlist, and Yosys' number of a net of one bit or a constant."""
Cell = tuple[Hashable, list[Bit], list[Bit]]
"""(kind, input bits, output bits)."""
Colours = Mapping[Bit, int]


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
            is_input = port["direction"] == "input"
            if is_input:
                for at, bit in enumerate(bits):
                    self.inputs[bit] = name, at
            else:
                self.outputs[name] = bits
        self.initial = defaultdict[Bit, set[str]](set)
        for net in module["netnames"].values():
            bits = self._bits(net["bits"])
            initial = net["attributes"].get("init", "")
            for bit, value in zip(bits, reversed(initial), strict=False):
                if value != "x":
                    self.initial[bit].add(value)
        self.cells: list[Cell] = []
        self._driven = {*self.inputs, *self._bits("01")}
        for name, cell in module["cells"].items():
            kind, inputs, outputs = self._cell(name, cell)
            self.cells.append((kind, inputs, outputs))
            self._driven.update(outputs)

    def idle(self) -> dict[str, str]:
        """The outputs as binary numbers in which a bit is 1 if it never has a value: it has no driver, or is
        constantly `x` or `z`."""
        masks = {}
        for name, bits in self.outputs.items():
            mask = ["0" if bit in self._driven else "1" for bit in reversed(bits)]
            masks[name] = "".join(mask)
        return masks

    def reads_nothing(self) -> bool:
        """Whether a cell reads a bit that has no driver."""
        known = self._driven.union(self._bits("xz"))
        return not all(known.issuperset(inputs) for _, inputs, _ in self.cells)

    def _bits(self, bits: Sequence[Any]) -> list[Bit]:
        return [(self._number, bit) for bit in bits]

    def _cell(self, name: str, cell: Mapping[str, Any]) -> Cell:
        bits = defaultdict[str, list[Bit]](list)
        widths = []
        for port, direction in sorted(cell["port_directions"].items()):
            connected = self._bits(cell["connections"][port])
            bits[direction] += connected
            width = len(connected)
            widths.append((port, width))
        what = cell["type"]
        parameters = {**cell["parameters"], "MEMID": ""}
        settings = json.dumps(parameters, sort_keys=True)
        kind: Hashable = (what, settings, *widths)
        if what in _FREE or "\\" in what:
            kind = (self._number, name)
        return kind, bits["input"], bits["output"]


def same_structure(first: Netlist, second: Netlist) -> bool:
    """Whether all outputs of two netlists are equal by their structure."""
    sides = (first, second)
    cells = [cell for side in sides for cell in side.cells]
    colours = _first_colours(sides)
    count, work = 0, 0
    while work < MAX_WORK:
        if _outputs(first, colours) != _outputs(second, colours):
            return False
        before = count
        classes = set(colours.values())
        count = len(classes)
        if count == before:
            return True
        work += len(colours)
        colours = _split(colours, cells)
    return False


def _outputs(side: Netlist, colours: Colours) -> dict[str, list[int]]:
    result = {}
    for name, bits in side.outputs.items():
        result[name] = [colours[bit] for bit in bits]
    return result


def _first_colours(sides: Sequence[Netlist]) -> dict[Bit, int]:
    classes: dict[Hashable, int] = {}
    colours: dict[Bit, int] = {}

    def paint(bit: Bit, *kind: Hashable) -> None:
        colour = classes.setdefault(kind, len(classes))
        colours.setdefault(bit, colour)

    for side in sides:
        for bit, port in side.inputs.items():
            paint(bit, "input", port)
        read = list(side.outputs.values())
        for kind, inputs, outputs in side.cells:
            read.append(inputs)
            for at, bit in enumerate(outputs):
                initial = sorted(side.initial[bit])
                paint(bit, kind, at, *initial)
        for bit in chain.from_iterable(read):
            _, net = bit
            constant = net if isinstance(net, str) else ""
            initial = sorted(side.initial[bit])
            paint(bit, "no driver", constant, *initial)
    return colours


def _split(colours: Colours, cells: Sequence[Cell]) -> dict[Bit, int]:
    """Colour each cell's outputs by their colours before and by those of the cell's inputs."""
    classes: dict[Hashable, int] = {}
    result: dict[Bit, int] = {}

    def paint(bit: Bit, kind: Hashable) -> None:
        result[bit] = classes.setdefault(kind, len(classes))

    for bit, colour in colours.items():
        paint(bit, colour)
    for _, inputs, outputs in cells:
        key = tuple(colours[bit] for bit in inputs)
        for bit in outputs:
            paint(bit, (colours[bit], key))
    return result
