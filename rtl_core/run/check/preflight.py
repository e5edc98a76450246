"""All checks before a run: those on its prompts, and `preflight`, which runs everything without a run."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import TypeVar

from rtl_core.backend.base import Provider, Readiness
from rtl_core.backend.registry import backend_of
from rtl_core.backend.start import wanted_models
from rtl_core.config import RunConfig
from rtl_core.episodes.endpoint import check_serves
from rtl_core.errors import UserError
from rtl_core.run.check import machine
from rtl_core.run.check.cost import cost, disk
from rtl_core.run.check.prompts import PreflightInput, context, known_good, prepare, sizes
from rtl_core.run.check.readiness import saved_weights
from rtl_core.run.conversations import endpoint_of, in_daemon_thread
from rtl_core.types.finding import Finding, Findings
from rtl_core.types.tokenizer import Tokenizer
from rtl_grader.problems.problem_set import LoadedProblems

HUB_S, ENGINE_S = 30, 45
"""Timeouts in seconds for tokenizers from a hub and for a Docker engine to start a container. Local work
has no timeout."""
Result = TypeVar("Result")


def small_pays(inputs: PreflightInput) -> Findings:
    """Warn if small designs earn more and a harness may pass incomplete designs, which are small."""
    problems = inputs.config.problems
    if problems.weak_ceiling:
        weak = "weak harnesses (problems.weak_ceiling)"
    elif not problems.require_golden:
        weak = "problems without a golden answer"
    else:
        return
    if inputs.config.reward.pays_size:
        text = f"small or fast designs earn more, and training uses {weak}, which may reward incomplete designs"
        remedy = "watch passes/doubtful, or audit the passes with rtl-distill grade audit"
        yield Finding("reward", "warning", text, remedy)


CHECKS: tuple[Callable[[PreflightInput], Iterable[Finding]], ...] = (
    context,
    sizes,
    known_good,
    small_pays,
    disk,
    cost,
)


def served_by_endpoint(config: RunConfig) -> list[Finding]:
    """Ask the endpoint whose answers the run imitates, if any, whether it serves the model."""
    endpoint = endpoint_of(config)
    return [check_serves(endpoint.url, endpoint.model)] if endpoint else []


def preflight_findings(inputs: PreflightInput) -> Findings:
    """Run the checks that need prompts, before anything is sampled."""
    for check in CHECKS:
        yield from check(inputs)


async def preflight(config: RunConfig, missing: UserError | None, named: str) -> list[Finding]:
    """Check everything that a run needs, each thing once, in at most a minute.

    Args:
        missing: the error for configured files that do not exist, if any.
        named: the configuration, as a command names it.
    """
    provider = backend_of(config)
    # Both threads below would import it; its import time must not count towards their timeouts.
    import transformers  # noqa: F401

    def read() -> LoadedProblems:
        if missing is not None:
            raise missing
        return machine.problems_of(config)

    engine_s = ENGINE_S if config.grading.executor == "docker" else None
    failed: list[Finding] = []
    (readiness, tokenizers), loaded, graders, server, served = await asyncio.gather(
        _ready_with_tokenizers(provider, config, failed),
        within(None, "data set", read, failed),
        within(engine_s, "executor", lambda: machine.sandbox(config), failed),
        machine.prefect(),
        asyncio.to_thread(served_by_endpoint, config),
    )
    findings = [*readiness.findings, *saved_weights(config, readiness), *served, *failed]
    inputs = PreflightInput(config, Readiness())
    if tokenizers and loaded:
        try:
            student = tokenizers["tinker.student"]
            chat = config.prompting.chat(student, config.tinker.student)
            words, prepared = chat.in_words(), prepare(config, loaded, chat)
        except UserError as error:
            findings.append(Finding.of("template", error))
        else:
            findings.append(Finding("template", "ok", words))
            findings += machine.parity(config, tokenizers, prepared, loaded, chat)
            inputs = PreflightInput(config, readiness, prepared, loaded, chat=chat)
    if loaded:
        unfit = inputs.prepared.unfit
        findings += machine.data(loaded, unfit, config.learning.by_source, named)
    if graders:
        tools, executor = graders
        findings += tools
        if executor is not None:
            with contextlib.closing(executor):
                findings += machine.tools(loaded, executor) if loaded else []
    findings += [server, *machine.history(config)]
    trains = inputs.prompts and config.run.purpose == "train"
    rest = preflight_findings(inputs) if trains else (*sizes(inputs), *cost(inputs))
    return [*findings, *rest]


async def _ready_with_tokenizers(
    provider: Provider, config: RunConfig, failed: list[Finding]
) -> tuple[Readiness, dict[str, Tokenizer] | None]:
    """Check the backend, then load the tokenizers; None if that fails, or the backend lacks a model or is out of
    reach (then a hub is too)."""
    readiness = await provider.check(config)
    if any(finding.level == "wrong" for finding in readiness.findings):
        return readiness, None
    models = wanted_models(config).items()

    def load() -> dict[str, Tokenizer]:
        return {key: provider.tokenizer(config, name) for key, name in models}

    return readiness, await within(HUB_S, "tokenizer", load, failed)


async def within(
    seconds: int | None, about: str, work: Callable[[], Result], failed: list[Finding]
) -> Result | None:
    """Run `work` in a daemon thread and return its result. None if it fails or times out (then it is left running);
    `failed` then gets the finding."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await in_daemon_thread(work)
    except UserError as error:
        failed.append(Finding.of(about, error))
    except Exception as error:  # the table of findings should appear in any case
        text, remedy = f"{type(error).__name__}: {error}", "see docs/operations.md"
        if limit.expired():
            text, remedy = f"no answer within {seconds} s", "check the network or the service"
        failed.append(Finding(about, "wrong", text, remedy))
    return None
