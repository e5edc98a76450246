"""The test bench that drives one design with stimuli from a file and prints its outputs, and what the sandbox
must know to run it and to compare two traces (inside/tracing.py, inside/comparing.py)."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rtl_grader.hdl.text import code_of
from rtl_grader.traces.stimuli import Driven, Stimuli, positions
from rtl_grader.verilog_templates import verilog_templates

SETTLE = 1_000
"""Nanoseconds from a change of inputs to the look at the outputs."""
SETTLE_DELAYS = 20_000
"""The same where the golden design has delays of its own."""
_DELAY = re.compile(r"#\s*[\d.(]*\d")
_INSTANCE = re.compile(r"#\s*\(\s*(?:\.|parameter\b|type\b|int\b)")
_TEMPLATES = verilog_templates(Path(__file__).parent / "benches")


def settle_of(texts: Sequence[str]) -> int:
    """Nanoseconds after which the outputs of a design with these texts are looked at."""
    code = "\n".join(map(code_of, texts))
    return SETTLE_DELAYS if _DELAY.search(_INSTANCE.sub("", code)) else SETTLE


def trace_files(sets: Sequence[tuple[Driven, Stimuli]], settle: int = SETTLE) -> dict[str, str]:
    """Files for the sandbox, by name: a bench and stimuli for each set of parameters, and `trace.json`, which
    says what they are. Each bench drives one instance of the design; all of them run in one simulation."""
    longest = max(len(stimuli.steps) for _, stimuli in sets)
    files = {}
    plan: list[dict[str, Any]] = []
    for number, (design, stimuli) in enumerate(sets):
        inputs = list(positions(design.inputs))
        outputs = list(positions(design.outputs))
        bits = inputs[-1][2] + 1 if inputs else 1
        files[f"bench{number}.sv"] = _TEMPLATES.get_template("trace.sv.jinja").render(
            number=number,
            module=design.interface.module,
            values=design.values,
            inputs=inputs,
            outputs=outputs,
            bits=bits,
            width=outputs[-1][2] + 1 if outputs else 1,
            steps=len(stimuli.steps),
            longest=longest,
            settle=settle,
        )
        words = "\n".join(format(step, "x") for step in stimuli.steps)
        files[f"stimuli{number}"] = packed(words)
        plan.append(
            {
                "values": dict(design.values),
                "steps": len(stimuli.steps),
                "first": stimuli.first,
                "inputs": [[port.name, port.width] for port in design.inputs],
                "outputs": [[port.name, port.width] for port in design.outputs],
            }
        )
    files["trace.json"] = json.dumps(plan)
    return files


def packed(text: str) -> str:
    """A text compressed, in base64: neither a compiler nor $readmem can read it."""
    return base64.b64encode(zlib.compress(text.encode(), 6)).decode()


@cache
def sandbox_scripts() -> Mapping[str, str]:
    """The scripts of `inside` and what they import, by name."""
    from rtl_grader.hdl import text

    inside = Path(__file__).parent / "inside"
    scripts = {path.name: path.read_text() for path in sorted(inside.glob("*.py"))}
    return {**scripts, "verilog_text.py": Path(text.__file__).read_text()}
