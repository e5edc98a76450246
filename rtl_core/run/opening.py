"""Open a run: check it, start what it needs, and say how far it is. session.py is what is then open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from rtl_core.algorithms.base import chosen
from rtl_core.at_work import slow_work
from rtl_core.backend.base import (
    SAVED,
    Backend,
    Provider,
    Readiness,
)
from rtl_core.backend.registry import backend_of
from rtl_core.backend.start import check_start
from rtl_core.config import RunConfig
from rtl_core.episodes.tools import definitions
from rtl_core.errors import HistoryError, InfrastructureError, PolicyError
from rtl_core.history.connection import hurried
from rtl_core.history.records import PlacedProblem
from rtl_core.history.store import History
from rtl_core.prompting.calls import ToolChat
from rtl_core.prompting.chat import Chat
from rtl_core.run.check.machine import problems_of
from rtl_core.run.check.preflight import preflight_findings, served_by_endpoint
from rtl_core.run.check.prompts import PreflightInput, PreparedPrompts, context, prepare
from rtl_core.run.check.readiness import ready, refuse_or_log
from rtl_core.run.conversations import open_conversation_pool
from rtl_core.run.folder import check_unchanged, has_begun, run_record, write_config
from rtl_core.run.forecast import prices_of
from rtl_core.run.lock import lock_path, run_lock
from rtl_core.run.recorder import Recorder
from rtl_core.run.session import Session
from rtl_core.run.signals import call_on_signal, cancel_later
from rtl_core.run.state import Graders, Policy, RunProgress
from rtl_core.types.tell import Tell
from rtl_grader.grading.cache import MOST_CACHED, MemoryCache
from rtl_grader.grading.executors import Executor
from rtl_grader.grading.limits import KnownGood
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.progress import at_intervals, log_line, progress
from rtl_grader.settings import Cluster, executor_of, grader_of, graders_of
from rtl_grader.words import first_lines

HEARTBEAT_S = 30.0
LOG_S = 60.0
"""Seconds between log lines that name work in progress for at least half of this time."""
Result = TypeVar("Result")


@asynccontextmanager
async def started_in_thread(
    make: Callable[[], Result], close: Callable[[Result], None] = lambda result: None
) -> AsyncIterator[asyncio.Task[Result]]:
    """Run `make` in a thread; at the end of the block its result is passed to `close`."""
    task = asyncio.create_task(asyncio.to_thread(make))
    try:
        yield task
    finally:
        (result,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(result, BaseException):
            close(result)


@asynccontextmanager
async def open_session(
    config: RunConfig,
    *,
    with_policy: bool = True,
    accept_changes: bool = False,
    as_visitor: bool = False,
    holder: Mapping[str, Any] | None = None,
    cluster: Cluster | None = None,
) -> AsyncIterator[Session]:
    """Open a run: a new one, or the one of that name in the history. Waits while another process works on it.

    A visitor (an evaluation of a run that was trained before) does not change the run's row and problems.

    Args:
        holder: information about this process for others while it works on the run (lock.py), JSON-serializable.
        cluster: runs the jobs of grading instead of a local executor; it is closed at the end, which ends running jobs.

    Raises:
        ConfigError: the run has another configuration and `accept_changes` is False, or a budget in dollars
            but no prices.
        UserError: any other problem that must be fixed before a token is sampled.
    """
    tell = progress.get().line
    chosen(config)
    async with AsyncExitStack() as stack:
        provider = backend_of(config)
        if not as_visitor or provider.embedded(config):
            await stack.enter_async_context(
                run_lock(lock_path(config), dict(holder or {}), tell)
            )
        readiness = None
        if with_policy:
            progress.get().stage("check")
            readiness = await ready(provider, config, tell)
        state = _progress(stack)
        history = History(config.run.history)
        loaded, executor, backend = await _start(
            stack, config, provider if readiness else None, cluster
        )
        state.at_signal.append(executor.close)
        if backend:
            state.at_signal.append(backend.abort)
        if not as_visitor:
            check_unchanged(
                config, loaded, history, executor.tools(), accept_changes=accept_changes
            )
            _log_left_out(loaded)
        graders = _graders(config, history, executor, cluster)
        stack.callback(graders.close)
        recorder = _recorder_of(config, provider, history)
        session = Session(config, history, recorder, loaded, graders, prices_of(config), state)
        if backend and readiness:
            await _open_policy(session, backend, provider, readiness, as_visitor)
            await _open_conversations(session, stack)
        if not as_visitor:
            await _record_start(session)
            stack.callback(asyncio.create_task(_heartbeat(session)).cancel)
        session.recorder.take_spent()  # opening the run counts for no step
        # Also if the run fails: what was sampled and graded is paid for.
        stack.push_async_callback(session.recorder.settle)
        await stack.enter_async_context(at_intervals(LOG_S, log_slow_steps))
        yield session


def _progress(stack: AsyncExitStack) -> RunProgress:
    """Return the progress of a new session. Until the stack is closed, its `at_signal` is called at a signal."""
    state = RunProgress()
    state.at_signal += [state.ending.set, cancel_later(), stack.enter_context(hurried())]
    stack.enter_context(call_on_signal(lambda: [call() for call in state.at_signal]))
    return state


async def _start(
    stack: AsyncExitStack, config: RunConfig, provider: Provider | None, cluster: Cluster | None
) -> tuple[LoadedProblems, Executor, Backend | None]:
    """Load the problems and start the graders' executor and the service. Each takes seconds, so they run
    concurrently."""
    tell = progress.get().line
    tell("reading problems")
    reading = await stack.enter_async_context(started_in_thread(partial(problems_of, config)))
    starting = await stack.enter_async_context(
        started_in_thread(
            lambda: cluster or executor_of(config.grading),
            close=lambda executor: executor.close(),
        )
    )
    opening = provider.open(config, tell) if provider else nullcontext()
    backend = await stack.enter_async_context(opening)
    return await reading, await starting, backend


def _graders(
    config: RunConfig, history: History, executor: Executor, cluster: Cluster | None
) -> Graders:
    """Return the graders, which start with what the history knows of earlier verdicts."""
    cache = MemoryCache(history.cached_verdicts(MOST_CACHED))
    known_good = KnownGood(*history.cpu_of_known_good())
    grader = grader_of(config.grading, executor, known_good, cache)
    return Graders(grader, graders_of(config.grading, cluster), cache=cache)


def _recorder_of(config: RunConfig, provider: Provider, history: History) -> Recorder:
    """Return the recorder; it writes more often if tokens cost money."""
    paid = config.tinker.teacher_apart or config.learning.imitates_endpoint
    if provider.embedded(config) and not paid:
        return Recorder(history)
    return Recorder(history, interval_s=0.1, share=0.1)


async def _record_start(session: Session) -> None:
    """Say how far the run is, record its row and its problems, and write its configuration to its folder."""
    config, loaded, history = session.config, session.loaded, session.history
    if done := history.steps_done(session.run):
        status = history.existing_run(session.run).status
        log_line(f"continues after step {done}; before, the run was {status}")
    await session.recorder.call(
        history.start_run, run_record(config, loaded, session.graders.grader.executor.tools())
    )
    # Problems that the run already has keep their place in the curriculum, or stay excluded.
    splits = {
        (row.problem_id, row.fingerprint): row.split for row in history.problems_of(session.run)
    }
    rows: list[PlacedProblem] = []
    for split, problems in (("train", loaded.train), ("heldout", loaded.heldout)):
        for problem in problems:
            if splits.get((problem.id, problem.fingerprint)) not in (split, "excluded"):
                rows.append((problem, split, None))
    await session.recorder.call(history.record_problems, session.run, rows)
    write_config(config)


async def _open_policy(
    session: Session,
    backend: Backend,
    provider: Provider,
    readiness: Readiness,
    as_visitor: bool,
) -> None:
    """Set the session's policy. Before anything is sampled, checks saved weights, prompts and budgets,
    which takes an open backend.

    Raises:
        PolicyError: weights that the run needs are missing or do not fit, or a prompt with its answer
            exceeds a model's context.
    """
    config, history, tell = session.config, session.history, progress.get().line
    if config.tinker.start_from and not as_visitor and not has_begun(history, session.run):
        check_start(config, await backend.describe(config.tinker.start_from))
    bases = await _bases_of_teachers(config, backend, tell if as_visitor else None)
    session.prices = prices_of(config, bases)
    chat = config.prompting.chat(backend.tokenizer, config.tinker.student)
    tell(chat.in_words())
    prepared = _prepare_prompts(session, chat, provider, bases, readiness)
    models = {name: bases.get(name, name) for name in config.tinker.named_teachers.values()}
    readers = {name: prepared.readers[m] for name, m in models.items() if m in prepared.readers}
    agreements = {name: prepared.agreements[models[name]] for name in readers}
    prepared = replace(prepared, readers=readers, agreements=agreements)
    for name, agreement in agreements.items():
        tell(f"teacher {name}: aligned by spans of text; {agreement.in_words}")
    context_of = readiness.context.get(config.tinker.student)
    newest_only = readiness.newest_weights_only
    session.opened_policy = Policy(backend, chat, context_of, newest_only, readers)
    if not session.trains:
        return
    inputs = PreflightInput(
        config, readiness, prepared, session.loaded, history, session.prices, chat
    )
    findings = list(context(inputs) if as_visitor else preflight_findings(inputs))
    done = history.steps_done(session.run)
    if not as_visitor and done < max(1, config.learning.warm_start_steps):
        findings += await asyncio.to_thread(served_by_endpoint, config)
    if done:
        # A resumed run has sampled with these settings before: errors become warnings.
        findings = [replace(f, level="warning") if f.level == "wrong" else f for f in findings]
    refuse_or_log(findings, tell)


async def _open_conversations(session: Session, stack: AsyncExitStack) -> None:
    """Open the conversation pool of a run that answers in episodes, or asks an endpoint. ConfigError if the
    chat template does not support episodes."""
    config, policy = session.config, session.policy
    episodes = config.learning.episodes
    if episodes:
        ToolChat(policy.chat, [] if config.episode.whole_answers else definitions())
    if episodes or config.learning.imitates_endpoint:
        pool = open_conversation_pool(config, with_tools=episodes)
        policy.conversations = await stack.enter_async_context(pool)


async def _bases_of_teachers(
    config: RunConfig, backend: Backend, tell: Tell | None
) -> dict[str, str]:
    """Mapping of saved weights that are teachers to their base model. With `tell`, missing weights are
    logged and left out instead of raised."""
    bases = {}
    for name in sorted(set(config.tinker.named_teachers.values())):
        if not name.startswith(SAVED):
            continue
        try:
            bases[name] = (await backend.describe(name)).base_model
        except PolicyError as error:
            if tell is None:
                raise
            tell(f"warning: {error.message}")
    return bases


async def _heartbeat(session: Session) -> None:
    """Record periodically that the run is alive (see flows/resume.py)."""
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        # A locked file or a full disk: the next heartbeat is enough.
        with contextlib.suppress(HistoryError, InfrastructureError):
            words = slow_work(LOG_S / 2)
            await session.recorder.call(session.history.heartbeat, session.run, words)


def log_slow_steps() -> None:
    """Log what the run has worked on or waited for for long."""
    if words := slow_work(LOG_S / 2):
        log_line(words)


def _log_left_out(loaded: LoadedProblems) -> None:
    tell = progress.get()
    for reason in (*loaded.broken_in_words, *loaded.left_out_in_words):
        tell.line(f"left out: {reason}")


def _prepare_prompts(
    session: Session,
    chat: Chat,
    provider: Provider,
    bases: Mapping[str, str],
    readiness: Readiness,
) -> PreparedPrompts:
    """Build the prompts, and compare every teacher's tokens with the student's.

    `bases`: see `prices_of`.
    """
    config, tell = session.config, progress.get()
    teachers = {}
    for name in config.tinker.named_teachers.values():
        model = bases.get(name, name)
        if not model.startswith(SAVED) and model not in teachers:
            teachers[model] = provider.tokenizer(config, model)
    prepared = prepare(config, session.loaded, chat, teachers, readiness)
    session.prompts = prepared.prompts
    session.unfit |= prepared.unfit
    for why in first_lines(prepared.unfit.values()):
        tell.line(f"left out: {why}")
    if later := len(session.problems) - len(prepared.prompts) - len(prepared.unfit):
        tell.line(f"{later:,} further prompts are built when they are used")
    prompts = prepared.prompts.values()
    notes = [f"{prompt.problem_id}: {note}" for prompt in prompts for note in prompt.notes]
    for note in first_lines(notes):
        tell.line(f"prompt of {note}")
    return prepared
