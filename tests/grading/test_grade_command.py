"""`rtl-distill grade` as a user runs it."""

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def files(cvdp, examples, tmp_path_factory):
    folder = tmp_path_factory.mktemp("grade")
    problems = folder / "problems.jsonl"
    problems.write_text("".join(path.read_text() for path in sorted(cvdp.glob("*v1.1.0_example*no_commercial*"))))
    lfsr = examples["cvdp_copilot_lfsr_0001"]
    code = lfsr.golden["rtl/lfsr_8bit.sv"]
    lines = [
        {"id": lfsr.id, "response": f"```verilog\n{code}\n```"},
        {"id": lfsr.id, "files": {"rtl/lfsr_8bit.sv": code.replace("lfsr_out[6] ^", "lfsr_out[5] ^")}},
        {"id": lfsr.id, "response": "I do not know.", "sample": 9},
        {"id": lfsr.id, "files": {"rtl/lfsr_8bit.sv": code, "src/conftest.py": "raise SystemExit"}},
        {"id": lfsr.id, "files": {"src/conftest.py": "x"}},
    ]
    return problems, lines, folder


def run(*arguments):
    command = [sys.executable, "-c", "from rtl_core.cli import main; main()", "grade", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def test_a_verdict_for_every_answer_in_order(files):
    problems, lines, folder = files
    answers, output = folder / "answers.jsonl", folder / "verdicts.jsonl"
    answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = run(problems, "--answers", answers, "--executor", "bubblewrap", "--output", output)
    assert done.returncode == 0, done.stderr
    assert "tests_failed" in done.stdout
    records = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(r["sample"], r["outcome"], r["passed"]) for r in records] == [
        (0, "passed", True),
        (1, "tests_failed", False),
        (9, "no_answer", False),
        (3, "passed", True),
        (4, "rejected", False),
    ]
    assert all(
        {"id", "sample", "outcome", "passed", "stages", "tests_passed", "tests_total", "reasons", "wall_s", "tools"}
        <= set(r)
        for r in records
    )
    assert "conftest" in records[3]["stages"]["format"]["reasons"][0]


def test_broken_answer_lines_are_named_and_the_others_graded(files):
    problems, lines, folder = files
    answers, output = folder / "broken.jsonl", folder / "broken-verdicts.jsonl"
    identity = lines[0]["id"]
    texts = [
        json.dumps(lines[2]),
        "{",
        "[]",
        json.dumps({"id": "unknown", "response": "x"}),
        json.dumps({"id": identity}),
        json.dumps({"id": identity, "files": {"rtl/a.sv": 3}}),
        json.dumps({"id": identity, "response": "x", "sample": "first"}),
        "",
    ]
    answers.write_text("\n".join(texts))
    done = run(problems, "--answers", answers, "--output", output, "--until", "format")
    assert done.returncode == 1
    for number, word in (
        (2, "JSON"),
        (3, "list"),
        (4, "unknown"),
        (5, "response"),
        (6, "files.rtl/a.sv"),
        (7, "sample"),
    ):
        assert any(f"broken.jsonl:{number}:" in line and word in line for line in done.stderr.splitlines()), done.stderr
    assert len(output.read_text().splitlines()) == 1


def test_a_missing_file_is_one_clear_sentence(files):
    problems, _, folder = files
    done = run(problems, "--answers", folder / "none.jsonl", "--output", folder / "x.jsonl")
    assert done.returncode == 2
    assert "none.jsonl" in done.stderr
    assert "Traceback" not in done.stderr
    done = run(problems, "--answers", folder / "answers.jsonl", "--output", folder / "x.jsonl", "--executor", "magic")
    assert done.returncode == 2
    assert "bubblewrap" in done.stderr
