"""A complete problem source of a user's own: a JSON list of objects with `name` (of the module), `spec`, `golden` and `test` (a cocotb module)."""

import json
from pathlib import Path

from rtl_grader.problems.interface import derive_interface
from rtl_grader.problems.problem_set import BrokenLine, ProblemSet
from rtl_grader.problems.sources import FileSource
from rtl_grader.types.problem import Problem

COMPOSE = """\
services:
  test:
    image: __OSS_SIM_IMAGE__
    volumes: ["./src/:/src/:ro"]
    working_dir: /code/rundir
    env_file: ./src/.env
    command: python3 /src/run.py
"""
ENVIRONMENT = "SIM = icarus\nVERILOG_SOURCES = /code/rtl/{0}.sv\nTOPLEVEL = {0}\nMODULE = test_design\nPYTHONPATH = /src\n"
RUN = """\
import os, sys
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

top, runner = os.environ["TOPLEVEL"], get_runner(os.environ["SIM"])
runner.build(sources=[os.environ["VERILOG_SOURCES"]], hdl_toplevel=top, timescale=("1ns", "1ps"))
tests, failed = get_results(runner.test(hdl_toplevel=top, test_module=os.environ["MODULE"]))
sys.exit(failed or not tests)
"""


class Tests(FileSource):
    """Designs with cocotb tests, in one JSON file."""

    path: Path
    """The JSON file."""

    def read(self) -> ProblemSet:
        made = ProblemSet()
        for number, entry in enumerate(json.loads(self.path.read_text()), 1):
            try:
                made.problems.append(problem(**entry))
            except TypeError as error:
                broken = BrokenLine(
                    self.path.name, number, entry.get("name"), "entry", str(error), "own-cocotb"
                )
                made.broken.append(broken)
        return made


def problem(name: str, spec: str, golden: str, test: str) -> Problem:
    """Return the problem of an entry. The harness is a compose file and the files that its service reads; exit code 0 passes."""
    design = f"rtl/{name}.sv"
    src = {"src/.env": ENVIRONMENT.format(name), "src/run.py": RUN, "src/test_design.py": test}
    asked = {
        "prompt": spec,
        "targets": (design,),
        "harness": {"docker-compose.yml": COMPOSE, **src},
    }
    interface = derive_interface(context={}, golden={design: golden}, **asked)
    return Problem(
        id=f"own_cocotb_{name}",
        source="own-cocotb",
        category="cid003",
        difficulty="easy",
        golden={design: golden},
        interface=interface,
        **asked,
    )
