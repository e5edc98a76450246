"""Exported problems in the clients' own commands, in a separate environment (`make test-clients`): right answers get 1, others 0."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from rtl_grader.exports.exported import messages, read_tasks
from rtl_grader.extraction.answer_to import response_of
from rtl_grader.hdl.interface import HDL_SUFFIXES
from rtl_grader.types.problem import Problem
from tests.places import REPOSITORY

pytestmark = pytest.mark.clients
CLIENTS = Path(__file__).parent / "clients"
BIN = REPOSITORY / "build/clients/bin"
EXAMPLES = "cvdp/cvdp_v1.1.0_example_{}_code_generation_no_commercial_with_solutions.jsonl"
FORGED = "<testsuites><testsuite name='t'><testcase name='t' classname='t' time='1'/></testsuite></testsuites>"
TRICKS = {
    "claims": 'initial begin $display("1 of 1 tests passed"); $finish(0); end',
    "results": f'integer f; initial begin f = $fopen("results.xml", "w"); $fwrite(f, "{FORGED}"); $fclose(f); end',
}
PAID = {"oracle", "twin"}


def into(text: str, item: str) -> str:
    """Return a module with an additional item."""
    return re.sub(r"\bendmodule\b", lambda _: f"{item}\nendmodule", text, count=1)


def stub(problem: Problem) -> dict[str, str]:
    """Return the known-good answer with its ports but without its body."""
    return {
        path: re.sub(
            r"(\bmodule\b.*?\)\s*;).*?\bendmodule\b", r"\1\nendmodule", text, flags=re.S
        )
        for path, text in (problem.golden or {}).items()
    }


def answers(problem: Problem) -> dict[str, str]:
    """Return a mapping of kind to response: the known-good answer, none, three attacks, and the known-good answer that looks like an attack."""
    golden, empty = dict(problem.golden or {}), stub(problem)
    top = next(path for path in golden if path.endswith(HDL_SUFFIXES))
    forged = {
        path: "import sys; sys.exit(0)\n" for path in problem.harness if path.endswith(".py")
    }
    return {
        "oracle": response_of(golden),
        "empty": "",
        **{
            kind: response_of({**empty, top: into(empty[top], trick)})
            for kind, trick in TRICKS.items()
        },
        "harness": response_of({**empty, **forged}),
        "twin": response_of(
            {**golden, top: into(golden[top], 'initial $display("1 of 1 tests passed");')}
        ),
    }


def sources(data: Path) -> list[str]:
    """Return the starter set and CVDP's two problems with known-good answers as command-line arguments."""
    names = [
        "starter",
        *(f"cvdp={data / EXAMPLES.format(kind)}" for kind in ("nonagentic", "agentic")),
    ]
    return [word for name in names for word in ("--source", name)]


def export(client: str, folder: Path, data: Path) -> dict[str, Problem]:
    """Export ten starter problems and CVDP's two by our command."""
    command = [
        "problems",
        "export",
        "--as",
        client,
        "--count",
        "10",
        str(folder),
        *sources(data),
    ]
    subprocess.run(
        [sys.executable, "-m", "rtl_distill.cli", *command], check=True, cwd=REPOSITORY
    )
    (tasks,) = folder.rglob("tasks.jsonl")
    problems = read_tasks(tasks.parent)
    assert len(problems) == 12
    assert {path.name for path in tasks.parent.glob("licences/cvdp/*")} == {
        "DATASET_LICENSE",
        "DATASET_NOTICE",
    }
    return problems


def client(
    program: str, *arguments: object, cwd: Path, extra: tuple[Path, ...] = (), **variables: str
) -> str:
    """Run a client's command. Returns its output."""
    own = (REPOSITORY, *(REPOSITORY / "packages").iterdir())
    path = os.pathsep.join(map(str, (*own, CLIENTS, *extra)))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        **variables,
    }
    done = subprocess.run(
        [BIN / program, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def by_kind(problems: Mapping[str, Problem]) -> dict[str, dict[str, str]]:
    all_ = {name: answers(problem) for name, problem in problems.items()}
    return {
        kind: {name: given[kind] for name, given in all_.items()}
        for kind in next(iter(all_.values()))
    }


def check(scores: Mapping[tuple[str, str], float], problems: Mapping[str, Problem]) -> None:
    """Assert the score of every (kind, problem)."""
    wanted = {
        (kind, name): float(kind in PAID) for kind in by_kind(problems) for name in problems
    }
    assert scores == wanted


@pytest.mark.parametrize("agent", [False, True], ids=["responses", "files of an agent"])
def test_inspect(tmp_path, data, agent):
    problems = export("inspect", tmp_path / "out", data)
    kinds = by_kind(problems)
    (tmp_path / "answers.json").write_text(json.dumps(kinds))
    replay = [
        "--solver",
        f"{CLIENTS}/replay.py@replay",
        "-S",
        f"answers={tmp_path}/answers.json",
    ]
    command = ["eval", "out/rtl.py", *replay]
    command += [
        "--model",
        "none",
        "--epochs",
        len(kinds),
        "--epochs-reducer",
        "max",
        "--log-format",
        "json",
    ]
    # Files are read from Inspect's sandbox. `local` replaces the container here, because answers are not executed in it.
    command += (
        ["-T", "agent=true", "-S", "into_sandbox=true", "--sandbox", "local"] if agent else []
    )
    client("inspect", *command, "--display", "none", cwd=tmp_path)
    (log,) = (tmp_path / "logs").glob("*.json")
    names = list(kinds)
    samples = json.loads(log.read_text())["samples"]
    check(
        {(names[s["epoch"] - 1], s["id"]): s["scores"]["verdict"]["value"] for s in samples},
        problems,
    )


def test_inspects_golden_solver(tmp_path, data):
    export("inspect", tmp_path / "out", data)
    command = [
        "eval",
        "out/rtl.py",
        "--solver",
        "out/rtl.py@golden",
        "--model",
        "none",
        "--log-format",
        "json",
    ]
    client("inspect", *command, "--display", "none", cwd=tmp_path)
    (log,) = (tmp_path / "logs").glob("*.json")
    (metrics,) = (
        score["metrics"] for score in json.loads(log.read_text())["results"]["scores"]
    )
    assert metrics["accuracy"]["value"] == 1.0


@contextmanager
def endpoint(folder: Path, problems: Mapping[str, Problem]) -> Iterator[str]:
    """Run a server that acts as a model and returns each kind of answer once."""
    shown = {
        messages(problem)[-1]["content"]: list(answers(problem).values())
        for problem in problems.values()
    }
    (folder / "answers.json").write_text(json.dumps(shown))
    command = [sys.executable, CLIENTS / "endpoint.py", "answers.json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        finally:
            server.terminate()


def test_vf_validate_passes_golden_answers_and_fails_empty_ones(tmp_path, data):
    export("verifiers", tmp_path / "out", data)
    command = ["rtl-tasks", "--runtime.type", "subprocess", "-o", "runs"]
    client("vf-validate", *command, cwd=tmp_path, extra=(tmp_path / "out",))
    (summary,) = (tmp_path / "runs").glob("*/summary.json")
    checks = json.loads(summary.read_text())["checks"]
    assert checks["gold"]["valid"] == checks["noop"]["valid"] == 12


def test_verifiers(tmp_path, data):
    problems = export("verifiers", tmp_path / "out", data)
    with endpoint(tmp_path, problems) as url:
        command = [
            "rtl-tasks",
            "-m",
            "player",
            "-r",
            "6",
            "-c",
            "2",
            "--no-push",
            "--no-rich",
            "-o",
            "runs",
        ]
        command += [
            "--env.agent.harness.id",
            "direct",
            "--env.agent.runtime.type",
            "subprocess",
        ]
        command += ["--client.base-url", url, "--client.api-key-var", "NO_KEY"]
        client("vf-eval", *command, cwd=tmp_path, extra=(tmp_path / "out",), NO_KEY="none")
    (traces,) = (tmp_path / "runs").glob("*/traces.jsonl")
    scores: dict[tuple[str, str], float] = {}
    for line in traces.read_text().splitlines():
        (trace,) = json.loads(line)["traces"]
        name, held = trace["task"]["data"]["id"], json.dumps(trace)
        given = {
            kind: json.dumps(text)[1:-1]
            for kind, text in answers(problems[name]).items()
            if text
        }
        kind = next((kind for kind, text in given.items() if text in held), "empty")
        scores[kind, name] = trace["rewards"]["tests_passed"]["score"]
    check(scores, problems)
