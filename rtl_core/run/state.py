"""What a run has while it is open: its graders, its policy, its weights, and its progress."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from attrs import define, field

from rtl_core.backend.base import Backend, Checkpoint, Trainer
from rtl_core.history.records import EndedBy, StepState, StoredRollout
from rtl_core.prompting.chat import Chat
from rtl_core.prompting.reading import Reader
from rtl_core.run.conversations import ConversationPool
from rtl_grader.grading.cache import MemoryCache
from rtl_grader.grading.pool import GraderPool
from rtl_grader.validation.doubts import Doubts


@define(eq=False)
class Graders(GraderPool):
    """The grader of a run with its threads, and what the run knows about its verdicts."""

    cache: MemoryCache = field(kw_only=True)
    """The grader's cache."""
    ceilings: dict[str, float] = field(factory=dict)
    """Mapping of problem id to the maximum reward of its answers, for weak harnesses (`problems.weak_ceiling`)."""
    doubts: Doubts = field(factory=Doubts)


@define(eq=False)
class Policy:
    """The backend that trains and samples, and the student's chat format."""

    backend: Backend
    chat: Chat
    context: int | None
    """Maximum tokens of prompt and answer together; None if the backend does not say."""
    newest_weights_only: bool = False
    """See `Readiness`."""
    readers: Mapping[str, Reader] = field(factory=dict)
    """Teachers, by name, whose tokens differ from the student's."""
    conversations: ConversationPool | None = None
    """For runs that answer in episodes (`learning.episodes`) or imitate the answers of an endpoint."""


@define(eq=False)
class WeightsOfRun:
    """The planned steps, and the weights that the recorded ones saved."""

    steps: list[StepState] = field(factory=list)
    """Every planned step of the run, in order (see planning.py)."""
    checkpoint: Checkpoint | None = None
    """The weights after the last recorded step; before the first one those of `tinker.start_from`, or None."""
    sampler_paths: dict[int, str] = field(factory=dict)
    """Mapping of number of train steps to weights to sample from, as recorded; an untrained student (0) has none."""
    trainer: Trainer | None = None
    """A trainer with the weights of the last recorded step; None if the next train step must open one."""
    deleted: set[int] = field(factory=set)
    """Steps whose weights this process has deleted."""


OnGraded = Callable[[str, Sequence[StoredRollout]], None]


@define(eq=False)
class RunProgress:
    """Progress of this process' work on the run, and how it ends."""

    opened_at: float = field(factory=time.monotonic)
    """Seconds on the monotonic clock."""
    on_step: list[Callable[[int], None]] = field(factory=list)
    """Callbacks that receive the number of each recorded step."""
    on_graded: list[OnGraded] = field(factory=list)
    """Called when the answers of an evaluation to a problem are graded, with its id."""
    at_signal: list[Callable[[], None]] = field(factory=list)
    """Called in order, from a thread, as soon as SIGTERM or SIGINT arrives."""
    last_step: dict[str, float] | None = None
    """Metrics of the step that was trained last."""
    step_ended: float = -math.inf
    """When it was recorded, by `time.perf_counter`."""
    ended_by: EndedBy = "signal"
    """What ended the run, if it is cancelled."""
    ending: threading.Event = field(factory=threading.Event)
    """Set once a signal or a request ends the run: later errors are consequences of that."""
    stopped: str | None = None
    """Why the run stops before its end (a budget, a pause), in words; None otherwise."""

    def cancelled_by_request(self) -> None:
        """Note that a user requested the cancellation, so that nothing restarts the run."""
        self.ended_by = "request"
        self.ending.set()
