"""The grader works without the rest of the project."""

import json
import subprocess
import sys

OTHERS = ("torch", "transformers", "tinker", "prefect", "duckdb", "rtl_core", "localtinker")
GRADE = """
import sys
from rtl_grader import cli
try:
    cli.main()
finally:
    print([name for name in {others} if name in sys.modules])
"""


def test_grading_an_answer_imports_nothing_of_the_pipeline(cvdp, examples, tmp_path):
    (problems,) = cvdp.glob("*v1.1.0_example_nonagentic_code_generation_no_commercial*")
    lfsr = examples["cvdp_copilot_lfsr_0001"]
    answers, output = tmp_path / "answers.jsonl", tmp_path / "verdicts.jsonl"
    answers.write_text(json.dumps({"id": lfsr.id, "files": lfsr.golden}) + "\n")
    words = ("grade", problems, "--answers", answers, "--output", output)
    program = GRADE.format(others=OTHERS)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
    assert json.loads(output.read_text())["outcome"] == "passed"


def test_public_names_exist_and_cost_nothing_before_their_use():
    program = (
        "import rtl_grader, sys; print(len([m for m in sys.modules if 'rtl_grader' in m]));"
    )
    program += "print(all(getattr(rtl_grader, name) for name in rtl_grader.PUBLIC))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "True"]
