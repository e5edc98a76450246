"""A person's shell in the sandbox that judged an answer: the same files, environment, user and limits."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from typing import Protocol, cast

from rtl_core.errors import ConfigError
from rtl_core.grading.executors.base import Executor, Job
from rtl_core.grading.jobs import Watched


class HasShell(Protocol):
    """An executor on this machine."""

    def shell(self, job: Job) -> int: ...


@dataclass(frozen=True)
class Shell:
    """A shell that is ready to be opened."""

    job: Job
    command: str
    """What the harness' service runs; `harness` runs it inside."""

    def open(self, executor: Executor) -> int:
        """Opens it on this process' terminal or streams; the shell's exit code. Nothing of it outlives it."""
        if not hasattr(executor, "shell"):
            raise ConfigError(f"the executor {executor.name} has no shell", "use bubblewrap or docker on this machine")
        return cast(HasShell, executor).shell(self.job)


def shell_of(watched: Watched) -> Shell:
    """The shell for what a grading has just run: in the service that failed first, else in the first one.

    Raises ConfigError when the answer was judged before its harness ran.
    """
    if not watched.runs:
        raise ConfigError(
            "there is no sandbox to open: the answer was judged before its harness ran", "its verdict says why"
        )
    job, result = watched.runs[0]
    failed = next((step.name for step in result.steps if step.exit_code != 0), job.steps[0].name)
    step = next(step for step in job.steps if step.name == failed)
    command = shlex.join(step.argv)
    environment = {
        **step.env,
        "PS1": r"sandbox:\w\$ ",
        # How bash hands functions on; it reads them whether somebody types or not.
        "BASH_FUNC_harness%%": f"() {{ ( cd {shlex.quote(step.cwd)} && {command} ); }}",
    }
    inside = replace(step, name="shell", argv=("bash", "--norc"), env=environment)
    return Shell(replace(job, steps=(inside,)), command)
