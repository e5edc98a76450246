"""Checks of this machine: the problems, the sandbox with its tools, the history file, and the Prefect
server if one is named."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Mapping
from importlib.metadata import version

import httpx

from rtl_core.backend.start import wanted_models
from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError, HistoryError, UserError
from rtl_core.history.connection import connect
from rtl_core.prompting.chat import Chat
from rtl_core.run.check.prompts import PreparedPrompts, compare
from rtl_core.types.finding import Finding, Findings
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.grading.executors import Executor
from rtl_grader.grading.executors.toolchain import shortcomings
from rtl_grader.grading.requirements import missing_requirements
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.problems.sources import load_problems
from rtl_grader.settings import executor_of
from rtl_grader.words import counted

CONNECT_S = 5.0


def problems_of(config: RunConfig) -> LoadedProblems:
    """Load and split the problems of a run.

    Raises:
        ProblemError: none can be read.
        ConfigError: a teacher or an algorithm is named for a source without problems; if misspelt, another
            one would be used silently.
    """
    loaded = load_problems(
        config.problems.sources,
        config.run.seed,
        config.problems.split,
        hold_out_all=config.run.purpose == "evaluation",
        exclude=config.problems.exclude,
    )
    sources = sorted({problem.source for problem in loaded.every})
    named = {
        "tinker.teachers": config.tinker.teachers,
        "learning.by_source": config.learning.by_source,
    }
    for key, by_source in named.items():
        if unknown := sorted(set(by_source) - set(sources)):
            raise ConfigError(
                f"{key}: no problem of this run is from {', '.join(unknown)}",
                f"its problems are from {', '.join(sources)}",
            )
    return loaded


def data(
    loaded: LoadedProblems,
    unfit: Mapping[str, str],
    by_source: Mapping[str, str] | None = None,
    named: str = "CONFIG",
) -> Findings:
    """Number of problems by source, with the algorithm of those that `by_source` names, and problems that
    cannot be used. `named`: the configuration, as a command names it."""
    about = "data set"
    train = Counter(problem.source for problem in loaded.train)
    heldout = Counter(problem.source for problem in loaded.heldout)
    for source in sorted(train | heldout):
        text = f"{source}: {train[source]} to train on, {heldout[source]} held out"
        own = f", algorithm {by_source[source]}" if by_source and source in by_source else ""
        yield Finding(about, "ok", text + own)
    if not loaded.heldout:
        remedy = (
            "set heldout_fraction (0.2) or heldout of a source, or add one with other designs"
        )
        yield Finding(about, "wrong", "no problem is held out to evaluate on", remedy)
    for reason in loaded.left_out_in_words:
        yield Finding(about, "ok", f"left out: {reason}")
    if unfit:
        text = f"{len(unfit)} problems have no prompt, such as {next(iter(unfit.values()))}"
        yield Finding(about, "warning", text, "raise prompting.max_prompt_tokens")
    if loaded.broken:
        text = (
            f"{counted(len(loaded.broken), 'line')} cannot be read, such as {loaded.broken[0]}"
        )
        remedy = (
            f"repair or fetch the file; `rtl-distill problems list --config {named}` names all"
        )
        yield Finding(about, "warning", text, remedy)


def sandbox(config: RunConfig) -> tuple[list[Finding], Executor | None]:
    """Start the executor and check it. Returns findings and the executor, which the caller closes; None if
    other machines grade."""
    if isinstance(config.grading.workers, str):
        host, _, port = config.grading.workers.removeprefix("dask://").rpartition(":")
        try:
            socket.create_connection((host, int(port)), CONNECT_S).close()
        except OSError as error:
            text = f"the Dask scheduler at {host}:{port} does not answer: {error.strerror or error}"
            remedy = "start `dask scheduler` there, or set grading.workers to a number"
            return [Finding("executor", "wrong", text, remedy)], None
        text = f"Dask workers of {host}:{port}; a run refuses workers whose tools differ"
        return [Finding("executor", "ok", text)], None
    executor = executor_of(config.grading)
    tools = executor.tools()
    versions = ", ".join(f"{tool} {version[:19]}" for tool, version in tools.items())
    findings = [Finding("executor", "ok", f"{executor.name}: {versions}")]
    for text in shortcomings(tools).values():
        findings.append(
            Finding("executor", "warning", text, "rtl-distill admin toolchain install")
        )
    return findings, executor


def tools(loaded: LoadedProblems, executor: Executor) -> Findings:
    """Problems whose harness needs a tool or module that the executor lacks."""
    if executor.derives_images:  # with the requirements of each harness
        return
    available = executor.tools()
    missing: dict[str, list[str]] = defaultdict(list)
    for problem in loaded.every:
        for requirement in missing_requirements(
            problem.harness, available, executor.has_module
        ):
            missing[requirement].append(problem.id)
    for requirement, ids in missing.items():
        text = f"{len(ids)} problems, such as {ids[0]}, need {requirement}, which is missing here: they are not graded"
        yield Finding("tools", "warning", text, "rtl-distill admin toolchain install")


def parity(
    config: RunConfig,
    tokenizers: dict[str, Tokenizer],
    prepared: PreparedPrompts,
    loaded: LoadedProblems,
    student: Chat,
) -> Findings:
    """Whether every model tokenizes the prompts like the student or, if not, how spans of text align the tokens."""
    models = wanted_models(config)
    _, *others = tokenizers.items()
    for key, tokenizer in others:
        try:
            text = compare(config, prepared, loaded, student, tokenizer, models[key])
        except UserError as error:
            yield Finding("tokenizer", "wrong", f"{key}: {error.message}", error.hint)
        else:
            yield Finding("tokenizer", "ok", f"{key} and student: {text}")


def history(config: RunConfig) -> Findings:
    """Whether the run's history file, if there is one, can be used."""
    path = config.run.history
    if path.exists():
        try:
            with connect(path, read_only=True):
                pass
        except HistoryError as error:
            yield Finding.of("history", error)
        except OSError as error:  # such as a folder of this name
            remedy = "set run.history to another file"
            yield Finding("history", "wrong", f"{path}: {error.strerror}", remedy)


async def prefect() -> Finding:
    """Check the Prefect server that PREFECT_API_URL names; without one a run starts its own."""
    about, ours = "prefect", version("prefect")
    url = os.environ.get("PREFECT_API_URL", "").rstrip("/")
    if not url:
        text = f"{ours}, with a temporary server (PREFECT_API_URL is not set)"
        return Finding(about, "ok", text)
    headers = {}
    if key := os.environ.get("PREFECT_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    user, colon, password = os.environ.get("PREFECT_API_AUTH_STRING", "").partition(":")
    client = httpx.AsyncClient(
        timeout=CONNECT_S, headers=headers, auth=(user, password) if colon else None
    )
    try:
        async with asyncio.timeout(2 * CONNECT_S), client:
            answer = await client.get(f"{url}/admin/version")
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
        why = str(error) or "no answer in time"
        remedy = "start it (`make deploy-local`, or `prefect server start`), or unset PREFECT_API_URL"
        return Finding(about, "wrong", f"the server at {url} does not answer: {why}", remedy)
    if answer.status_code in (401, 403):
        text = f"the server at {url} refuses access ({answer.status_code})"
        return Finding(about, "wrong", text, "set PREFECT_API_KEY or PREFECT_API_AUTH_STRING")
    theirs = ""
    with contextlib.suppress(ValueError):
        theirs = str(answer.json()) if answer.is_success else ""
    if not theirs:
        text = f"{url} is not a Prefect API ({answer.status_code})"
        remedy = "PREFECT_API_URL ends in /api, such as http://127.0.0.1:4200/api"
        return Finding(about, "wrong", text, remedy)
    if theirs.split(".")[:2] != ours.split(".")[:2]:
        text = f"the server at {url} is Prefect {theirs}, this is {ours}"
        return Finding(about, "warning", text, "install the same version on both sides")
    return Finding(about, "ok", f"{theirs} at {url}")
