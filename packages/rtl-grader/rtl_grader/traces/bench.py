"""The test bench that drives one design with stimuli from a file and prints its outputs, and what the sandbox
must know to run it and to compare two traces (inside/tracing.py, inside/comparing.py)."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rtl_grader.hdl import text as verilog_text
from rtl_grader.hdl.text import code_of
from rtl_grader.traces.driving import Driven
from rtl_grader.traces.inside.comparing import assignments, places
from rtl_grader.traces.stimuli import Stimuli
from rtl_grader.types.files import Files
from rtl_grader.verilog_templates import verilog_templates

JUDGE = ("judge.py", "tracing.py", "comparing.py")
PROVER = (
    "prover.py",
    "deciding.py",
    "miter.py",
    "structure.py",
    "tracing.py",
    "verilog_text.py",
)
"""Scripts that judge an answer, and those that prove that it equals the golden one."""
SETTLE = 1_000
"""Nanoseconds from a change of inputs to the look at the outputs."""
SETTLE_DELAYS = 20_000
"""The same where the golden design has delays of its own."""
_DELAY = re.compile(r"#\s*[\d.(]*\d")
_INSTANCE = re.compile(r"#\s*\(\s*(?:\.|parameter\b|type\b|int\b)")
_TEMPLATES = verilog_templates(Path(__file__).parent / "benches")


def settle_of(texts: Iterable[str]) -> int:
    """Nanoseconds after which the outputs of a design with these texts are looked at."""
    code = "\n".join(map(code_of, texts))
    return SETTLE_DELAYS if _DELAY.search(_INSTANCE.sub("", code)) else SETTLE


def trace_files(sets: Sequence[tuple[Driven, Stimuli]], settle: int = SETTLE) -> dict[str, str]:
    """Files for the sandbox, by path: a bench and stimuli for each set of parameters, and `trace.json`, which
    says what they are. Each bench drives one instance of the design; all of them run in one simulation."""
    files = {}
    plan: list[dict[str, Any]] = []
    for number, (design, stimuli) in enumerate(sets):
        values = assignments(design.values)
        files[f"src/bench{number}.sv"] = bench(design, number, settle)
        lines = [format(step, "x") for step in stimuli.steps]
        files[f"src/stimuli{number}"] = packed("\n".join(lines))
        plan.append(
            {
                "with": f" with {values}" if values else "",
                "first": stimuli.first,
                "inputs": design.inputs,
                "outputs": design.outputs,
                "clocks": list(design.clocks),
                "resets": design.levels,
                "settle": settle,
            }
        )
    files["src/trace.json"] = json.dumps(plan)
    return files


def bench(design: Driven, number: int = 0, settle: int = SETTLE) -> str:
    """A test bench for a design, with words that the sandbox replaces (benches/trace.sv.jinja)."""
    inputs = design.inputs
    outputs = design.outputs
    return _TEMPLATES.get_template("trace.sv.jinja").render(
        number=number,
        module=design.interface.module,
        values=design.values,
        inputs=places(inputs),
        outputs=places(outputs),
        size=max(1, sum(bits for _, bits in inputs)),
        width=max(1, sum(bits for _, bits in outputs)),
        settle=settle,
    )


def packed(text: str | bytes) -> str:
    """A text compressed, in base64: neither a compiler nor $readmem can read it."""
    data = text.encode() if isinstance(text, str) else text
    return base64.b64encode(zlib.compress(data, 6)).decode()


def unpacked(text: str) -> bytes:
    """What `packed` made of a text."""
    return zlib.decompress(base64.b64decode(text))


@cache
def sandbox_scripts(*names: str) -> Files:
    """Scripts of `inside` for the sandbox, by path; `verilog_text.py` is hdl/text.py, which the prover imports."""
    inside = Path(__file__).parent / "inside"
    places = {"verilog_text.py": Path(verilog_text.__file__)}
    return {f"src/{name}": places.get(name, inside / name).read_text() for name in names}
