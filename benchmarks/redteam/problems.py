"""The attacked problems, by key (tables/problems.toml).

`starter/...` and `own/...` are always available. The others are read from the published sets
(RTL_DISTILL_DATA) and left out if these are missing, except that `own/lfsr` replaces CVDP's LFSR.
"""

from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.common import DATA
from benchmarks.redteam.attack import BASES, INC
from benchmarks.redteam.tables import read
from rtl_core.starter import Spec, problem_of
from rtl_grader.hdl.text import module_names
from rtl_grader.problems.cvdp import problem_from_record, read_cvdp
from rtl_grader.problems.folder.reader import understand
from rtl_grader.problems.interface import derive_interface
from rtl_grader.problems.judged import Judging, judged_problem
from rtl_grader.problems.service import compose_file
from rtl_grader.problems.sources.rtllm import read_rtllm
from rtl_grader.problems.sources.verilog_eval import read_verilog_eval
from rtl_grader.problems.testbench import Bench, bench_harness
from rtl_grader.types.problem import Problem

OWN = Path(__file__).parent / "own"
"""Test benches of the red team's own problems."""

_COMPOSE = compose_file(
    "direct", "pytest -s -o cache_dir=/code/rundir/.cache /src/test_runner.py -v"
)
GIVEN = {
    "rtl/given.svh": "`define GIVEN_W 8\n",
    "rtl/table.hex": "".join(f"{byte:02x}\n" for byte in range(256)),
}
"""Files that a problem with several sources starts with."""


def _cocotb(name: str) -> Problem:
    """One of the red team's own problems, with a cocotb test."""
    one = read("problems")["own"][name]
    top, targets = one["top"], one.get("targets", one["sources"])
    environment = {
        "SIM": "icarus",
        "TOPLEVEL_LANG": "verilog",
        "VERILOG_SOURCES": " ".join(f"/code/{path}" for path in one["sources"]),
        "TOPLEVEL": top,
        "MODULE": f"test_{top}",
        "PYTHONPATH": "/src",
    }
    files = {
        "docker-compose.yml": _COMPOSE,
        "src/.env": "".join(f"{key} = {value}\n" for key, value in environment.items()),
        "src/test_runner.py": read("problems")["runner"]["builds"].replace(
            "{sets}", one.get("sets", "[{}]")
        ),
        f"src/test_{top}.py": one["test"],
    }
    record = {
        "id": f"redteam_{name}",
        "categories": ["cid003", "easy"],
        "input": {"prompt": one["prompt"], "context": GIVEN if len(one["sources"]) > 1 else {}},
        "output": {"response": "", "context": dict.fromkeys(targets, "")},
        "harness": {"files": files},
    }
    return problem_from_record(record, source="redteam")


def _bench(name: str, top: str, marker: str, passed: str) -> Problem:
    target = "rtl/inc8.sv"
    sources = {"test.sv": (OWN / f"{name}.sv").read_text()}
    bench = Bench(
        sources=sources, design=target, dut="inc8", top=top, marker=marker, passed=passed
    )
    golden = {target: INC.design(core="good")}
    prompt = (
        "Module inc8: a register that takes d + 1. Inputs clk, d (8 bits). Output q, 8 bits.\n"
    )
    harness = bench_harness(bench)
    return Problem(
        id=f"redteam_{name}",
        source="redteam",
        category="cid003",
        difficulty="easy",
        prompt=prompt,
        targets=(target,),
        harness=harness,
        golden=golden,
        interface=derive_interface(
            prompt=prompt, context={}, targets=(target,), harness=harness, golden=golden
        ),
    )


def _judged(name: str, **judging: Any) -> Problem:
    """A problem that its golden answer judges: the good design of its base."""
    base = BASES[f"own/{name}"]
    golden = base.design(core="good")
    top = module_names(golden)[0]
    return judged_problem(
        id=f"redteam_{name}",
        source="redteam",
        category="cid003",
        difficulty="easy",
        prompt=f"Write this module:\n```verilog\n{base.head}```\n",
        golden={f"rtl/{top}.sv": golden},
        top=top,
        judging=Judging(**judging),
    )


def _header() -> Problem:
    """A problem that its golden answer judges, of which a header is a part."""
    golden = INC.design(core="good").replace("+ 1", "+ `STEP")
    return judged_problem(
        id="redteam_header",
        source="redteam",
        category="cid003",
        difficulty="easy",
        prompt="Module inc8: a register that takes d + 1. Inputs clk, d (8 bits). Output q, 8 bits.\n",
        golden={
            "rtl/inc8.sv": f'`include "step.vh"\n{golden}',
            "rtl/step.vh": "`define STEP 1\n",
        },
        top="inc8",
    )


def _folder(name: str) -> Problem:
    """A folder with a design, given files and a bench."""
    reading = understand(name, OWN / name, OWN / name / "problem.toml")
    assert reading.problem is not None, reading.error
    return reading.problem


@cache
def own() -> dict[str, Problem]:
    """The red team's own problems, one for each kind of harness, so that the tests need no data."""
    return {
        **{f"own/{name}": _cocotb(name) for name in read("problems")["own"]},
        "own/bench": _bench("bench", "tb", "Mismatches:", r" +0 in +[1-9][0-9]* samples"),
        "own/unit": _bench("unit", "tb", "Mismatches:", r" +0 in +[1-9][0-9]* samples"),
        "own/loud": _bench("loud", "main", "Your Design Passed", ""),
        "own/judged": _judged("judged"),
        "own/judged_inc": _judged("judged_inc"),
        "own/judged_proof": _judged("judged_proof", proof="undecided"),
        "own/judged_bus": _judged("judged_bus"),
        "own/judged_valid": _judged("judged_valid", valid="valid"),
        "own/judged_header": _header(),
        "own/given": _folder("given"),
    }


@cache
def published() -> dict[str, Problem]:
    """The published problems that are available."""
    found: dict[str, Problem] = {}
    paths = [
        *sorted((DATA / "cvdp").glob("*v1.1.0_example*no_commercial*.jsonl")),
        DATA / "cvdp-single/problems.jsonl",
    ]
    by_id = {
        problem.id: problem
        for path in paths
        if path.is_file()
        for problem in read_cvdp(path).problems
    }
    found |= {
        key: by_id[name] for key, name in read("problems")["published"].items() if name in by_id
    }
    if (DATA / "verilog-eval").is_dir():
        for problem in read_verilog_eval(DATA / "verilog-eval").problems:
            found["ve/" + problem.id.removeprefix("verilog_eval_")[:7]] = problem
    if (DATA / "RTLLM").is_dir():
        for problem in read_rtllm(DATA / "RTLLM").problems:
            found["rtllm/" + problem.id.removeprefix("rtllm_")] = problem
    return found


@cache
def find(key: str) -> Problem | None:
    """The problem of a key, or None if its set is not available. Raises KeyError for an unknown starter or own key."""
    kind, _, name = key.partition("/")
    if kind == "starter":
        family, module, ports, width, option = read("problems")["starter"][name]
        return problem_of(Spec(family, module, tuple(ports), width, option))
    if kind == "own":
        return own()[key]
    return published().get(key) or (own()["own/lfsr"] if key == "cvdp/lfsr" else None)
