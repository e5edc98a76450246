"""The session of a run: everything that is open while it lives (history, problems, grader, backend)."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import define, field

from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Prices
from rtl_core.errors import ProblemError
from rtl_core.history.store import History
from rtl_core.prompting.budget import Prompt
from rtl_core.run.recorder import Recorder
from rtl_core.run.state import Graders, Policy, RunProgress, WeightsOfRun
from rtl_core.types.tokenizer import TokenIds
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.types.problem import Problem


@define(eq=False)
class Session:
    """One open run. An attrs class, because Prefect walks through dataclasses among the parameters of tasks
    and flows."""

    config: RunConfig
    history: History
    recorder: Recorder
    loaded: LoadedProblems
    graders: Graders
    prices: Prices
    progress: RunProgress
    problems: dict[str, Problem] = field(init=False)
    prompts: dict[str, Prompt] = field(factory=dict)
    """Mapping of problem id to its prompt, if the run was opened with a policy. See `prompt_fits`."""
    unfit: dict[str, str] = field(factory=dict)
    """Mapping of problem id to the reason for excluding it from the run."""
    weights: WeightsOfRun = field(factory=WeightsOfRun)
    opened_policy: Policy | None = None

    def __attrs_post_init__(self) -> None:
        self.problems = {problem.id: problem for problem in self.loaded.every}

    @property
    def run(self) -> str:
        return self.config.run.name

    @property
    def trains(self) -> bool:
        """Whether the run trains; otherwise it only evaluates a model."""
        return self.config.run.purpose == "train"

    @property
    def policy(self) -> Policy:
        """The policy of the run. RuntimeError if the run was opened without one."""
        if self.opened_policy is None:
            raise RuntimeError("this session was opened without a policy")
        return self.opened_policy

    def room_after(self, prompt_P: TokenIds) -> int | None:
        """Return the tokens that the model's context leaves for an answer to a prompt of P tokens; None: no limit.

        Only evaluation runs are limited: a training run whose budgets exceed the context must fail.
        """
        context = None if self.trains else self.policy.context
        return None if context is None else max(0, context - len(prompt_P))

    @property
    def train(self) -> list[Problem]:
        """The training problems that are usable."""
        return self.usable(self.loaded.train)

    @property
    def heldout(self) -> list[Problem]:
        """The held-out problems that are usable."""
        return self.usable(self.loaded.heldout)

    def prompt_fits(self, problem_id: str) -> bool:
        """Whether a problem has a prompt within the budget. If not, it is in `unfit` from here on. Ask before the
        prompt of a training problem is used: of a large set not all prompts are built at the start."""
        try:
            return self.opened_policy is None or bool(self.prompts[problem_id])
        except ProblemError as error:
            self.unfit[problem_id] = error.message
            return False

    def usable(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return those of `problems` that are fit and have a prompt within the budget."""
        return [problem for problem in problems if problem.id not in self.unfit]
