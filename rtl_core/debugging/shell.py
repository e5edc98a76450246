"""An interactive shell in the sandbox that judged an answer, with the same files, environment, user and limits."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

from rtl_core.errors import ConfigError
from rtl_grader.grading.executors.base import Executor, Job
from rtl_grader.grading.jobs import RecordingExecutor


@dataclass(frozen=True)
class Shell:
    """A shell that can be opened."""

    job: Job
    command: str
    """The command of the harness' service; `harness` runs it in the shell."""

    def open(self, executor: Executor) -> int:
        """Open it on this process' terminal or streams; return its exit code. It leaves nothing behind."""
        shell = getattr(executor, "shell", None)
        if shell is None:
            raise ConfigError(
                f"the executor {executor.name} has no shell",
                "use bubblewrap or docker on this machine",
            )
        return int(shell(self.job))


def shell_of(watched: RecordingExecutor) -> Shell:
    """The shell for a finished grading: in the service that failed first, or in the first one.

    Raises ConfigError if the answer was judged before its harness ran.
    """
    if not watched.runs:
        raise ConfigError(
            "there is no sandbox to open: the answer was judged before its harness ran",
            "its verdict says why",
        )
    job, result = watched.runs[0]
    failed = next(
        (step.name for step in result.steps if step.exit_code != 0), job.steps[0].name
    )
    step = next(step for step in job.steps if step.name == failed)
    command = shlex.join(step.argv)
    environment = {
        **step.env,
        "PS1": r"sandbox:\w\$ ",
        # How bash exports functions; it also reads them if it is not interactive.
        "BASH_FUNC_harness%%": f"() {{ ( cd {shlex.quote(step.cwd)} && {command} ); }}",
    }
    inside = replace(step, name="shell", argv=("bash", "--norc"), env=environment)
    return Shell(replace(job, steps=(inside,)), command)
