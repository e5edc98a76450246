"""The command `rtl-grader grade`."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from subprocess import PIPE

import pytest
from rich.console import Console

from rtl_core.errors import ProblemError
from rtl_grader.cli.console import ConsoleProgress
from rtl_grader.grading.limits import Limits
from rtl_grader.grading.verdict_file import VerdictFile
from rtl_grader.progress import progress
from rtl_grader.records.grade_file import FileGrading, grade_file
from rtl_grader.types.verdict import Stage
from tests.command import invoke
from tests.waiting import wait_for


@pytest.fixture(scope="module")
def files(cvdp, examples, tmp_path_factory):
    folder = tmp_path_factory.mktemp("grade")
    problems = folder / "problems.jsonl"
    problems.write_text(
        "".join(
            path.read_text() for path in sorted(cvdp.glob("*v1.1.0_example*no_commercial*"))
        )
    )
    lfsr = examples["cvdp_copilot_lfsr_0001"]
    code = lfsr.golden["rtl/lfsr_8bit.sv"]
    lines = [
        {"id": lfsr.id, "response": f"```verilog\n{code}\n```"},
        {
            "id": lfsr.id,
            "files": {"rtl/lfsr_8bit.sv": code.replace("lfsr_out[6] ^", "lfsr_out[5] ^")},
        },
        {"id": lfsr.id, "response": "I do not know.", "sample": 9},
        {
            "id": lfsr.id,
            "files": {"rtl/lfsr_8bit.sv": code, "src/conftest.py": "raise SystemExit"},
        },
        {"id": lfsr.id, "files": {"src/conftest.py": "x"}},
    ]
    return problems, lines, folder


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(*arguments):
    command = [
        sys.executable,
        "-c",
        "from rtl_distill.cli import main; main()",
        "grade",
        *map(str, arguments),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


def graded(problems, answers, output, **settings):
    """Run it in this process, which is faster; return the console output."""
    told = io.StringIO()
    before = progress.set(ConsoleProgress(Console(file=told, width=200)))
    grade_file(FileGrading(problems, answers, output, **settings))
    progress.reset(before)
    return told.getvalue()


def test_a_verdict_for_every_answer_in_order(files):
    problems, lines, folder = files
    answers, output = write(folder / "answers.jsonl", lines), folder / "verdicts.jsonl"
    done = run(problems, "--answers", answers, "--executor", "bubblewrap", "--output", output)
    assert done.returncode == 0, done.stderr
    assert "tests_failed" in done.stdout
    records = read(output)
    assert [(r["sample"], r["outcome"], r["passed"]) for r in records] == [
        (0, "passed", True),
        (1, "tests_failed", False),
        (9, "no_answer", False),
        (3, "passed", True),
        (4, "rejected", False),
    ]
    assert all(
        {
            "id",
            "sample",
            "outcome",
            "passed",
            "stages",
            "tests_passed",
            "tests_total",
            "reasons",
            "wall_s",
            "tools",
        }
        <= set(r)
        for r in records
    )
    assert "conftest" in records[3]["stages"]["format"]["reasons"][0]


@pytest.mark.slow
def test_passing_answers_are_audited_on_request(files, tmp_path):
    problems, lines, _ = files
    answers, output = write(tmp_path / "answers.jsonl", lines), tmp_path / "verdicts.jsonl"
    findings = tmp_path / "findings.jsonl"
    done = run(problems, "--answers", answers, "--output", output, "--audit", findings)
    assert done.returncode == 0, done.stderr
    passed = [verdict for verdict in read(output) if verdict["passed"]]
    found = read(findings)
    assert [(one["id"], one["sample"]) for one in found] == [
        (one["id"], one["sample"]) for one in passed
    ]
    assert {(one["result"], one["method"]) for one in found} == {("equal", "proof")}
    assert f"audited passes: {len(passed)} proved" in done.stdout


def test_findings_do_not_overwrite_the_verdicts(files, tmp_path):
    problems, lines, _ = files
    answers, output = write(tmp_path / "answers.jsonl", lines[:1]), tmp_path / "verdicts.jsonl"
    for place in (problems, answers, output):
        refused = invoke(
            "grade",
            "answers",
            problems,
            "--answers",
            answers,
            "--output",
            output,
            "--audit",
            place,
        )
        assert "would overwrite another file" in str(refused.exception)


def test_broken_answer_lines_are_named_and_the_others_graded(files):
    problems, lines, folder = files
    answers, output = folder / "broken.jsonl", folder / "broken-verdicts.jsonl"
    identity = lines[0]["id"]
    broken = [
        ("{", "JSON"),
        ("[]", "list"),
        (json.dumps({"id": "unknown", "response": "x"}), "unknown"),
        (json.dumps({"id": identity}), "response"),
        (json.dumps({"id": identity, "files": {"rtl/a.sv": 3}}), "files.rtl/a.sv"),
        (json.dumps({"id": identity, "response": "x", "sample": "first"}), "sample"),
    ]
    answers.write_text("\n".join([json.dumps(lines[2]), *(text for text, _ in broken), ""]))
    done = invoke(
        "grade",
        "answers",
        problems,
        "--answers",
        answers,
        "--output",
        output,
        "--until",
        "format",
        COLUMNS="200",
    )
    assert done.exit_code == 1
    for number, (_, word) in enumerate(broken, 2):
        assert any(
            f"broken.jsonl:{number}:" in line and word in line
            for line in done.stderr.splitlines()
        ), done.stderr
    assert len(output.read_text().splitlines()) == 1


def test_a_missing_file_and_an_unknown_executor_are_named(files):
    problems, _, folder = files
    for answers, executor, said in (
        (folder / "none.jsonl", "bubblewrap", "none.jsonl"),
        (problems, "magic", "docker"),
    ):
        done = invoke(
            "grade",
            "answers",
            problems,
            "--answers",
            answers,
            "--output",
            folder / "x.jsonl",
            "--executor",
            executor,
        )
        assert said in str(done.exception) + done.stderr


HUNG = "  reg spin = 0;\n  initial while (1) spin = ~spin;\nendmodule"
LIMIT = ("--timeout", "100")


def hanging(lines):
    """Four answers; the simulation of the second never ends."""
    identity, ((path, code),) = lines[1]["id"], lines[1]["files"].items()
    slow = {"id": identity, "files": {path: code.replace("endmodule", HUNG)}, "sample": 7}
    return [lines[2], slow, {**lines[0], "sample": 8}, {**lines[1], "sample": 10}]


@contextlib.contextmanager
def started(*arguments):
    """The command in its own process group, which is killed at the end."""
    # A background process of a shell ignores interrupts, and so would its children.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    command = [
        sys.executable,
        "-c",
        f"{heed}; from rtl_distill.cli import main; main()",
        "grade",
        *map(str, arguments),
    ]
    process = subprocess.Popen(
        command, stdout=PIPE, stderr=PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def is_gone(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize(
    "executor", ["bubblewrap", pytest.param("docker", marks=pytest.mark.docker)]
)
@pytest.mark.parametrize(
    ("number", "group"),
    [
        (signal.SIGINT, False),
        pytest.param(signal.SIGINT, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, False, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_command_keeps_its_verdicts_and_resumes(
    files, tmp_path, executor, number, group
):
    problems, lines, _ = files
    answers, output = (
        write(tmp_path / "answers.jsonl", hanging(lines)),
        tmp_path / "verdicts.jsonl",
    )
    call = (
        problems,
        "--answers",
        answers,
        "--output",
        output,
        "--jobs",
        2,
        "--executor",
        executor,
        *LIMIT,
    )
    with started(*call) as process:
        # The third and fourth are written before the second.
        wait_for(
            lambda: output.exists() and len(output.read_text().splitlines()) == 3,
            "three verdicts",
        )
        time.sleep(1)
        (os.killpg if group else os.kill)(process.pid, number)
        start = time.monotonic()
        _, told = process.communicate(timeout=20)
        assert (
            time.monotonic() - start < 12
        )  # 0.6 to 2.8 s on a busy machine; the limit of the simulation is 100 s
        assert process.returncode == 128 + number
        assert "3 of 4 verdicts are written; the same command continues" in told
        assert "Traceback" not in told
        wait_for(lambda: is_gone(process.pid), "the end of the group", 20)
    first = read(output)
    assert {record["sample"]: record["outcome"] for record in first} == {
        9: "no_answer",
        8: "passed",
        10: "tests_failed",
    }
    changed = hanging(lines)
    ((path, code),) = lines[1]["files"].items()
    changed[1]["files"] = {path: f"// quick\n{code}"}
    write(answers, changed)
    again = run(*call)
    assert again.returncode == 0, again.stderr
    assert "3 verdicts reused" in again.stderr
    second = read(output)
    assert [record["sample"] for record in second] == [9, 7, 8, 10]
    assert [record for record in second if record["sample"] != 7] == sorted(first, key=lambda r: (9, 7, 8, 10).index(r["sample"]))  # fmt: skip
    assert "4 answers, 1 graded now" in again.stdout


def test_only_verdicts_on_the_same_problem_answer_and_settings_are_reused(files, tmp_path):
    problems, lines, _ = files
    answers, output = write(tmp_path / "answers.jsonl", lines[1:4]), tmp_path / "verdicts.jsonl"
    call = (problems, answers, output)
    assert "reused" not in graded(*call, until=Stage.FORMAT)
    whole = output.read_text()
    assert "3 verdicts reused" in graded(*call, until=Stage.FORMAT)
    assert output.read_text() == whole
    # A new first answer shifts the others; a changed answer is graded again; a broken last line is dropped.
    other = {path: "// changed\n" + text for path, text in lines[3]["files"].items()}
    first = {path: "// first\n" + text for path, text in lines[1]["files"].items()}
    moved = [{**lines[1], "files": first}, lines[1], lines[2], {**lines[3], "files": other}]
    write(answers, moved)
    output.write_text(whole + whole.splitlines()[0][:40])
    told = graded(*call, until=Stage.FORMAT)
    assert "2 verdicts reused" in told
    assert "1 lines replaced" in told
    assert [(record["sample"], record["outcome"]) for record in read(output)] == [
        (0, "not_tested"),
        (1, "not_tested"),
        (9, "no_answer"),
        (3, "not_tested"),
    ]
    for setting in (
        {"seed": 5},
        {"limits": Limits(wall_s=119)},
        {"repeat": 2},
        {"until": Stage.INTERFACE},
    ):
        assert "4 lines replaced" in graded(*call, **{"until": Stage.FORMAT, **setting}), (
            setting
        )
        assert len(read(output)) == 4


@pytest.mark.slow
def test_a_right_answer_sets_the_budget_of_the_rest_after_an_interrupt(files, tmp_path):
    problems, (right, *_), _ = files
    answers, output = (
        write(tmp_path / "answers.jsonl", [{**right, "sample": 0}]),
        tmp_path / "verdicts.jsonl",
    )
    limits = Limits(wall_s=600, cpu_s=600, cpu_floor_s=0.5)
    graded(problems, answers, output, limits=limits)
    text = right["response"].replace(
        "logic q1,", "integer i; initial while (1) i = i + 1; logic q1,"
    )
    write(answers, [{**right, "sample": 0}, {**right, "response": text, "sample": 1}])
    assert "1 verdicts reused" in graded(problems, answers, output, limits=limits)
    assert "the known-good answer takes" in read(output)[1]["reasons"][0]


def test_equal_answers_are_graded_once(files, tmp_path):
    problems, lines, _ = files
    answers = write(tmp_path / "answers.jsonl", [lines[1] | {"sample": n} for n in range(4)])
    graded(problems, answers, tmp_path / "v.jsonl", until=Stage.SYNTAX, jobs=4)
    records = read(tmp_path / "v.jsonl")
    assert [record["sample"] for record in records] == [0, 1, 2, 3]
    assert len({record["wall_s"] for record in records}) == 1


def test_a_failed_grading_is_repeated(files, tmp_path):
    problems, lines, _ = files
    answers, output = write(tmp_path / "answers.jsonl", lines[1:3]), tmp_path / "verdicts.jsonl"
    graded(problems, answers, output, until=Stage.INTERFACE)
    good, other = read(output)
    write(output, [{**good, "outcome": "infrastructure_error"}, other])
    assert "1 verdicts reused" in graded(problems, answers, output, until=Stage.INTERFACE)
    assert [record["outcome"] for record in read(output)] == ["not_tested", "no_answer"]


@pytest.mark.parametrize(
    "content", ['{"id": "x", "response": "y"}\n', "notes\n", '{"id": "x"\n{"id": "y"}\n']
)
def test_a_file_with_other_contents_is_not_overwritten(files, tmp_path, content):
    problems, lines, _ = files
    answers, output = write(tmp_path / "answers.jsonl", lines[2:3]), tmp_path / "mine.txt"
    output.write_text(content)
    with pytest.raises(ProblemError, match=r"mine\.txt:1"):
        graded(problems, answers, output, until=Stage.FORMAT)
    assert output.read_text() == content


def test_a_second_command_with_the_same_output_fails_and_loses_no_verdict(files, tmp_path):
    problems, lines, _ = files
    answers, output = write(tmp_path / "answers.jsonl", lines[2:3]), tmp_path / "verdicts.jsonl"
    graded(problems, answers, output)
    kept = output.read_text()
    with (
        contextlib.closing(VerdictFile(output)),
        pytest.raises(ProblemError, match="another process has"),
    ):
        graded(problems, answers, output)
    assert output.read_text() == kept


def test_progress_is_reported_every_quarter_without_a_terminal(files, tmp_path):
    problems, lines, _ = files
    ((path, code),) = lines[1]["files"].items()
    answers = write(
        tmp_path / "answers.jsonl",
        [lines[1] | {"files": {path: f"{code}// {n}\n"}} for n in range(40)],
    )
    done = run(
        problems, "--answers", answers, "--output", tmp_path / "v.jsonl", "--until", "format"
    )
    assert {record["outcome"] for record in read(tmp_path / "v.jsonl")} == {"not_tested"}
    told = [line.split("  ")[-1] for line in done.stderr.splitlines() if "graded: " in line]
    assert told == [f"answers graded: {n} of 40" for n in (10, 20, 30, 40)]
