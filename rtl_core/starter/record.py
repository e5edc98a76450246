"""Convert a specification to a CVDP single-turn record: prompt, golden answer, and a cocotb harness with
the family's model."""

from __future__ import annotations

import hashlib
import inspect
import random
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from rtl_core.starter.spec import WIDTHS, Family, Spec
from rtl_grader.problems.service import compose_file

TEST_MODULE = '''\
"""Checks {module}."""

import os

import cocotb
import starter_bench

SPECS = {{
{specs}}}
SPEC = SPECS[int(os.environ.get("TESTED_WIDTH", "{width}"))]


{reference}{tests}'''
TEST = """

@cocotb.test()
async def {test}(dut):
    await starter_bench.{test}(dut, SPEC, reference)
"""

COMBINATIONAL_TESTS = ("corners", "vectors")
CLOCKED_TESTS = ("reset_value", "reset_kind", "edges", "cycles")
MIN_PARAMETER = 2


def target_of(spec: Spec) -> str:
    """Path of the answer's only file."""
    return f"rtl/{spec.module}.sv"


def record_of(family: Family, spec: Spec) -> dict[str, Any]:
    """Return the CVDP record. Its id is derived from family and prompt, so equal problems have equal ids."""
    prompt = family.prompt(spec)
    digest = hashlib.sha256(f"{family.name}\n{prompt}".encode()).hexdigest()[:10]
    return {
        "id": f"starter_{family.name}_{digest}",
        "categories": ["cid003", family.difficulty],
        "input": {"prompt": prompt, "context": {}},
        "output": {"response": "", "context": {target_of(spec): family.code(spec)}},
        "harness": {"files": _harness(family, spec, digest)},
    }


def _harness(family: Family, spec: Spec, digest: str) -> dict[str, str]:
    tests = CLOCKED_TESTS if family.sequential else COMBINATIONAL_TESTS
    widths = tested_widths(family, spec, digest)
    environment = {
        "SIM": "icarus",
        "TOPLEVEL_LANG": "verilog",
        "VERILOG_SOURCES": f"/code/{target_of(spec)}",
        "TOPLEVEL": spec.module,
        "MODULE": f"test_{spec.module}",
        "TESTS": str(len(tests) * len(widths)),
        "PYTHONPATH": "/src",
    }
    if (parameter := family.parameter(spec)) is not None:
        environment |= {
            "PARAMETER": parameter,
            "PARAMETER_VALUES": " ".join(map(str, widths[1:])),
        }
    return {
        "docker-compose.yml": compose_file("direct", "python3 /src/test_runner.py"),
        "src/.env": "".join(f"{key} = {value}\n" for key, value in environment.items()),
        **_bench_files(),
        f"src/test_{spec.module}.py": _test_module(family, spec, tests, widths, digest),
    }


@cache
def _bench_files() -> dict[str, str]:
    """Files that all harnesses of the set share: path -> text."""
    bench = files("rtl_core.starter") / "bench"
    names = {"test_runner.py": "test_runner.py", "pytest.py": "no_pytest.py"}
    names |= {name: name for name in ("starter_bench.py", "starter_stimuli.py")}
    return {f"src/{name}": (bench / file).read_text() for name, file in names.items()}


def tested_widths(family: Family, spec: Spec, digest: str) -> list[int]:
    """Return the specified width and, if a module parameter sets it, two others: a smaller one if possible,
    and larger ones.

    Larger ones exceed all defaults, so they expose ports that are only as wide as the default.
    """
    if family.parameter(spec) is None:
        return [spec.width]
    rng = random.Random(digest)
    smaller = range(MIN_PARAMETER, spec.width)
    larger = range(WIDTHS[-1] + 1, WIDTHS[-1] + 5)
    others = [rng.choice(smaller), rng.choice(larger)] if smaller else rng.sample(larger, 2)
    return [spec.width, *others]


def _test_module(
    family: Family, spec: Spec, tests: tuple[str, ...], widths: list[int], digest: str
) -> str:
    facts = {}
    for width in widths:
        items = _facts(family, replace(spec, width=width), digest).items()
        facts[width] = "".join(f"        {key!r}: {value!r},\n" for key, value in items)
    return TEST_MODULE.format(
        module=spec.module,
        specs="".join(f"    {width}: {{\n{text}    }},\n" for width, text in facts.items()),
        width=spec.width,
        reference=reference_source(family),
        tests="".join(TEST.format(test=test) for test in tests),
    )


def _facts(family: Family, spec: Spec, digest: str) -> dict[str, Any]:
    """Facts about one width of a problem, for `bench/starter_bench.py`."""
    signals = family.signals(spec)
    facts: dict[str, Any] = {
        "problem": digest,
        "width": spec.width,
        "option": spec.option,
        "inputs": [(signal.name, signal.width) for signal in signals if signal.is_input],
        "outputs": [(signal.name, signal.width) for signal in signals if not signal.is_input],
    }
    if (parameter := family.parameter(spec)) is not None:
        facts["parameter"] = parameter
    if family.sequential:
        facts |= {
            "clock": spec.clock,
            "reset": spec.reset,
            "active_low": spec.active_low,
            "asynchronous": spec.asynchronous,
            "reset_state": family.reset_state,
            "bursts": family.bursts_of(spec),
        }
    return facts


@cache
def reference_source(family: Family) -> str:
    """Source text of the family's reference model as a plain function without annotations."""
    _, _, body = inspect.getsource(family.reference).partition('"""\n')  # after the docstring
    return "def reference(width, option, state, inputs):\n" + body.lstrip("\n")
