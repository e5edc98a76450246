"""What checks look at, what is asked of the backend first, and how a run refuses to begin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rtl_core.backend.base import Provider, Readiness
from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Prices
from rtl_core.errors import BackendUnavailableError, ConfigError, PolicyError
from rtl_core.history.store import History
from rtl_core.problems.load import load_problems
from rtl_core.problems.problem_set import LoadedProblems
from rtl_core.prompting.budget import Prompt
from rtl_core.types.finding import Finding

PATIENCE_S = 10.0
"""How long a run asks again where what is wrong may pass."""
PAUSE_S = 3.0


@dataclass(frozen=True)
class Known:
    """What is known of a run before anything is sampled."""

    config: RunConfig
    readiness: Readiness
    prompts: Mapping[str, Prompt]
    """Problem id -> its prompt, of those that have one."""
    loaded: LoadedProblems = field(default_factory=LoadedProblems)
    history: History | None = None
    """The run's history where it is open; None: it is looked for at its place."""
    prices: Prices | None = None
    """The run's prices where they are known; None: the configuration's list."""
    unfit: Mapping[str, str] = field(default_factory=dict)
    """Problem id -> why it has no prompt."""

    def tokens(self, split: Sequence[str]) -> list[float]:
        """Tokens of the prompts of some problem ids."""
        return [float(len(self.prompts[id].tokens_P)) for id in split if id in self.prompts]


Check = Callable[[Known], Iterable[Finding]]


def problems_of(config: RunConfig) -> LoadedProblems:
    """The problems of a run, read and split.

    Raises:
        ProblemError: none can be read.
        ConfigError: a teacher is named for a source that no problem is from. A misspelt one would go to the other teacher.
    """
    loaded = load_problems(
        config.problems.sources,
        config.run.seed,
        config.problems.split,
        hold_out_all=config.run.purpose == "evaluation",
    )
    sources = sorted({problem.source for problem in [*loaded.train, *loaded.heldout]})
    if unknown := sorted(set(config.tinker.teachers) - set(sources)):
        raise ConfigError(
            f"tinker.teachers: no problem of this run is from {', '.join(unknown)}",
            f"its problems are from {', '.join(sources)}",
        )
    return loaded


async def ready(provider: Provider, config: RunConfig, tell: Callable[[str], None]) -> Readiness:
    """What the backend says before a run. Where it is merely busy or out of reach it is asked again for a while.

    Raises:
        PolicyError: something is wrong that no time mends.
        BackendUnavailableError: it is still busy or out of reach.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        found = await provider.check(config)
        wrong = [finding for finding in found.findings if finding.level == "wrong"]
        if not wrong or not all(finding.passing for finding in wrong) or time.monotonic() > deadline:
            refuse_or_tell(found.findings, tell)
            return found
        tell(f"{wrong[0].text}; asked again")
        await asyncio.sleep(PAUSE_S)


def refuse_or_tell(findings: Iterable[Finding], tell: Callable[[str], None]) -> None:
    """Tell what was found, and raise one error of all that is wrong.

    Raises:
        BackendUnavailableError: all of it may be right a moment later.
        PolicyError: anything else is wrong.
    """
    wrong = []
    for finding in findings:
        if finding.level == "wrong":
            wrong.append(finding)
        else:
            warning = "" if finding.level == "ok" else "warning: "
            tell(f"{warning}{finding.about}: {finding.text}" + (f"; {finding.remedy}" if finding.remedy else ""))
    if not wrong:
        return
    kind = BackendUnavailableError if all(finding.passing for finding in wrong) else PolicyError
    if len(wrong) == 1:
        raise kind(f"{wrong[0].about}: {wrong[0].text}", wrong[0].remedy)
    lines = (f"  {one.about}: {one.text}" + (f"\n    -> {one.remedy}" if one.remedy else "") for one in wrong)
    raise kind("\n".join(["the run cannot begin", *lines]))
