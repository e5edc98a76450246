"""A separate Docker engine that tests may kill: its socket, data and processes are not the machine's."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.common import marked
from rtl_core.errors import InfrastructureError, ToolMissingError

IMAGE = "rtl-distill-sim"
STARTS = 4


class Engine(contextlib.AbstractContextManager["Engine"]):
    """Starts `dockerd` in `folder` and copies the simulation image to it from the machine's engine. Needs
    root. `host` is its DOCKER_HOST."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("dockerd") is None or os.geteuid() != 0:
            raise ToolMissingError(
                "a Docker engine of its own needs dockerd and root", "apt-get install docker.io"
            )
        folder.mkdir(parents=True)
        self._folder = folder
        self.host = f"unix://{folder}/docker.sock"
        self._process = self._start()
        save = subprocess.Popen(["docker", "save", IMAGE], stdout=subprocess.PIPE)
        subprocess.run(
            ["docker", "-H", self.host, "load", "-q"],
            stdin=save.stdout,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        if save.wait() != 0:
            raise InfrastructureError(
                f"the image {IMAGE} cannot be copied",
                "packages/rtl-grader/rtl_grader/grading/sim/build.sh",
            )

    @contextlib.contextmanager
    def down(self, how: signal.Signals = signal.SIGKILL) -> Iterator[None]:
        """End the engine with this signal; start it again when the block ends."""
        self._process.send_signal(how)
        self._process.wait()
        try:
            yield
        finally:
            self._process = self._start()

    def __exit__(self, *_: object) -> None:
        """End the engine, processes that killed predecessors left running, and mounts in its folder, so
        that the folder can be removed."""
        self._process.terminate()
        self._process.wait(60)
        # Shims of containers that still run use a socket in the folder.
        for pid in set(marked("shim", "cmdline")) & set(marked(f"{self._folder}/", "cmdline")):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for line in Path("/proc/mounts").read_text().splitlines():
            if line.split()[1].startswith(f"{self._folder}/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)

    def containers(self) -> list[str]:
        """Ids of all its containers, running or not."""
        done = subprocess.run(
            ["docker", "-H", self.host, "ps", "-aq"], check=True, capture_output=True, text=True
        )
        return done.stdout.split()

    def _start(self) -> subprocess.Popen[bytes]:
        """Start the engine, and again if its containerd is too slow on a busy machine, as a service manager would."""
        command = ["dockerd", "-H", self.host, "--data-root", str(self._folder / "data")]
        command += [
            "--exec-root",
            str(self._folder / "exec"),
            "--pidfile",
            str(self._folder / "docker.pid"),
        ]
        # Containers that grade have no network, so the engine needs no bridge and no firewall rules.
        command += ["--iptables=false", "--ip6tables=false", "--bridge=none"]
        for _ in range(STARTS):
            (self._folder / "docker.pid").unlink(missing_ok=True)
            with (self._folder / "log").open("ab") as log:
                process = subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            for _ in range(240):
                if (
                    subprocess.run(
                        ["docker", "-H", self.host, "info"], capture_output=True
                    ).returncode
                    == 0
                ):
                    return process
                if process.poll() is not None:
                    break
                time.sleep(0.5)
            process.kill()
            process.wait()
        tail = (self._folder / "log").read_text(errors="replace")[-2000:]
        raise InfrastructureError(f"the Docker engine does not start:\n{tail}")
