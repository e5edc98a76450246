"""Exported problems in Harbor's and NeMo Gym's commands with the grading service. They need Python 3.12 (`make test-newer-clients`; minutes)."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rtl_grader.extraction.answer_to import answer_to
from tests.interop.test_exported_in_clients import (
    CLIENTS,
    answers,
    by_kind,
    check,
    endpoint,
    export,
    sources,
)
from tests.places import REPOSITORY

pytestmark = pytest.mark.newer_clients
ROOT = REPOSITORY / "build/newer"


@contextmanager
def service(folder: Path, data: Path) -> Iterator[dict[str, str]]:
    """Run `serve-grader` for the sources of the export. Yields its environment variables."""
    token = {"RTL_DISTILL_GRADER_TOKEN": "a token of the test"}
    command = [sys.executable, "-m", "rtl_distill.cli", "serve", "grader", *sources(data)]
    command += ["--output", str(folder / "verdicts.jsonl"), "--port", "0"]
    environment = {**os.environ, **token}
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            line = next(line for line in server.stdout if "GRADER_URL=" in line)
            yield {"RTL_DISTILL_GRADER_URL": line.strip().split("=", 1)[1], **token}
        finally:
            server.terminate()


def newer(client: str, *command: object, cwd: Path, **variables: str) -> str:
    """Run a command in the newer root, with `cwd` and this repository at the same paths. Returns its output."""
    words = [
        "bwrap",
        "--bind",
        ROOT,
        "/",
        *[
            "--dev",
            "/dev",
            "--proc",
            "/proc",
            "--bind",
            "/run",
            "/run",
            "--bind",
            "/tmp",
            "/tmp",
        ],
    ]
    words += [
        "--ro-bind",
        REPOSITORY,
        REPOSITORY,
        "--chdir",
        cwd,
        "--die-with-parent",
        "--",
        *command,
    ]
    path = f"/opt/{client}/bin:/usr/bin:/bin"
    kept = {name: os.environ[name] for name in ("DOCKER_HOST",) if name in os.environ}
    environment = {
        **kept,
        "PATH": path,
        "HOME": str(cwd),
        "PYTHONPATH": str(CLIENTS),
        **variables,
    }
    done = subprocess.run(
        list(map(str, words)), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_harbor(tmp_path, data):
    problems = export("harbor", tmp_path / "out", data)
    kinds = by_kind(problems)
    files = {
        kind: {name: answer_to(problems[name], text).files for name, text in given.items()}
        for kind, given in kinds.items()
    }
    (tmp_path / "answers.json").write_text(json.dumps(files))
    own = {"oracle": "oracle", "empty": "nop"}
    replay = {"import_path": "harbor_replay:Replay"}
    given = {"answers": str(tmp_path / "answers.json")}
    agents = [
        {"name": own[kind]} if kind in own else {**replay, "kwargs": {**given, "kind": kind}}
        for kind in kinds
    ]
    job = {
        "job_name": "job",
        "jobs_dir": "jobs",
        "n_concurrent_trials": 4,
        "datasets": [{"path": "out"}],
        "agents": agents,
    }
    (tmp_path / "job.json").write_text(json.dumps(job))
    # No download of price lists and no telemetry.
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "HARBOR_TELEMETRY": "off"}
    with service(tmp_path, data) as address:
        newer(
            "harbor", "harbor", "run", "-c", "job.json", "-y", cwd=tmp_path, **quiet, **address
        )
    names = {agent: kind for kind, agent in own.items()}
    scores = {}
    for path in (tmp_path / "jobs/job").glob("*/result.json"):
        result = json.loads(path.read_text())
        agent = result["config"]["agent"]
        kind = names.get(agent["name"]) or agent["kwargs"]["kind"]
        scores[kind, result["task_name"].partition("/")[2]] = result["verifier_result"][
            "rewards"
        ]["reward"]
    check(scores, problems)


def test_nemo_gym(tmp_path, data):
    problems = export("nemo-gym", tmp_path / "out", data)
    # Its servers use this environment instead of installing one each.
    for server in (
        "resources_servers/rtl",
        "responses_api_agents/simple_agent",
        "responses_api_models/openai_model",
    ):
        (tmp_path / "venvs" / server).mkdir(parents=True)
        (tmp_path / "venvs" / server / ".venv").symlink_to("/opt/nemo-gym")
    command = [
        "gym",
        "eval",
        "run",
        "--resources-server",
        "rtl",
        "--model-type",
        "openai_model",
        "--model",
        "player",
    ]
    command += [
        *["--model-api-key", "none", "--split", "validation", "--num-repeats", "6", "--output"],
        tmp_path / "rollouts.jsonl",
    ]
    command += ["+skip_venv_if_present=true", f"+uv_venv_dir={tmp_path}/venvs"]
    with service(tmp_path, data) as address, endpoint(tmp_path, problems) as url:
        newer(
            "nemo-gym",
            *command,
            "--model-url",
            url,
            cwd=tmp_path / "out",
            RAY_USAGE_STATS_ENABLED="0",
            **address,
        )
    scores = {}
    for line in (tmp_path / "rollouts.jsonl").read_text().splitlines():
        rollout = json.loads(line)
        text = rollout["response"]["output"][0]["content"][0]["text"]
        kind = next(
            kind for kind, given in answers(problems[rollout["id"]]).items() if given == text
        )
        scores[kind, rollout["id"]] = rollout["reward"]
    check(scores, problems)
