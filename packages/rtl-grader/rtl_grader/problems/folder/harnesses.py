"""The harness of a design with its bench: cocotb tests, or a Verilog bench."""

from __future__ import annotations

from pathlib import Path
from posixpath import basename, dirname, join

from rtl_grader.hdl.expansion import expanded
from rtl_grader.problems.faults import FieldError
from rtl_grader.problems.folder.bench import BenchFiles, verdict_of
from rtl_grader.problems.folder.design import DesignFiles, definitions, included, needed
from rtl_grader.problems.service import compose_file
from rtl_grader.problems.testbench import (
    Bench,
    bench_harness,
    bench_modules,
    hidden_data,
)
from rtl_grader.verilog_templates import verilog_templates
from rtl_grader.words import counted

_TEMPLATES = verilog_templates(Path(__file__).parent)
_SCRIPT = "run_cocotb.py"
_STARTER = "cocotb_test"
"""A library that only starts simulations, which the harness itself does."""
_UNUSED = {f"src/{_STARTER}/__init__.py": "", f"src/{_STARTER}/simulator.py": "run = None\n"}


def cocotb_harness(design: DesignFiles, test: str, notes: dict[str, str]) -> dict[str, str]:
    """The harness of cocotb tests: path -> text.

    `test` is the Python file with the tests; those beside and below it belong to the harness, too.
    """
    folder, keys, build = design.folder, design.keys, design.build
    here = join(dirname(test), "")
    files = [path for path in folder.paths if path.endswith(".py") and path.startswith(here)]
    if test not in files:
        raise FieldError("bench", f"there is no Python file {test} with its tests")
    python = {f"src/{path.removeprefix(here)}": folder.text(path) for path in files}
    runs = keys.bench.parameters
    notes["verdict"] = f"cocotb tests, with {counted(len(runs), 'set')} of parameters"
    hidden, places = hidden_data(design.hidden, build)
    script = _TEMPLATES.get_template(f"{_SCRIPT}.jinja").render(
        runs=runs, simulator=keys.simulator, build=build, data=places
    )
    module = basename(test).removesuffix(".py")
    environment = build.environment(
        keys.simulator,
        design.top,
        design.moved(design.answer),
        f"MODULE = {module}",
        "PYTHONPATH = /src",
    )
    uses_starter = any(_STARTER in text for text in python.values())
    return {
        "docker-compose.yml": compose_file("testbench", f"python3 /src/{_SCRIPT}"),
        "src/.env": environment,
        f"src/{_SCRIPT}": script,
        **(_UNUSED if uses_starter else {}),
        **python,
        **hidden,
    }


def verilog_harness(
    design: DesignFiles, bench: BenchFiles, notes: dict[str, str]
) -> dict[str, str]:
    """The harness of a Verilog bench: path -> text.

    Raises FieldError when the bench has no or several top modules, or if its verdict must be stated.
    """
    texts = design.folder.hdl
    apart = {*bench.paths, *design.answer, *design.given}
    beside = needed(texts, bench.paths, apart)
    # The bench has its own copy of the given files, without macros and includes.
    sources = {path: texts[path] for path in (*design.given, *beside, *bench.paths)}
    headers = included(texts, sources, design.keys.include)
    text = expanded(sources, headers, design.keys.define)
    verdict = verdict_of(text, design.keys.bench)
    notes["verdict"] = f"a line with {verdict.passed}" if verdict.passed else "no error"
    uninstantiated, used = bench_modules(text)
    own = definitions({path: texts[path] for path in bench.paths})
    stated = design.keys.bench.top
    tops = [top for top in uninstantiated if top in own and stated in ("", top)]
    if design.top not in used or len(tops) != 1:
        uses = " ".join(bench.duts)
        reason = f"one top module must hold {design.top}; there are {tops}, which hold {uses}"
        raise FieldError("bench.top", reason)
    (path, golden), *_ = design.moved(design.answer).items()
    return bench_harness(
        Bench(
            sources={"bench.sv": text},
            design=path,
            dut=design.top,
            top=tops[0],
            marker="",
            golden=golden,
            data=design.hidden,
            build=design.build,
            own=verdict,
        )
    )
