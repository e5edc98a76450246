"""Installs the simulation image's files as a root directory for bubblewrap, so that both executors run the same tools.

`install` exports the files from the image of a running engine, or builds them by debootstrap with the
scripts that build the image. `install_older_cocotb` adds cocotb 1.9 to this machine's own tools.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

from rtl_grader.errors import InfrastructureError, ToolMissingError
from rtl_grader.grading.executors.docker import BUILD, IMAGE
from rtl_grader.grading.executors.toolchain import (
    MANIFEST,
    PROBE,
    Toolchain,
    bwrap_path,
    root_binds,
    tools_home,
)

Source = Literal["docker", "debootstrap"]
_OLDER = "cocotb==1.9.2"
_PIP_INSTALL = "-m pip install --quiet --upgrade --no-deps"
_UNPACK = "tar -x --no-same-owner --exclude=dev/* --exclude=./dev/*"
_ISOLATION = "--unshare-all --clearenv --setenv PATH /opt/sim/bin:/usr/bin:/bin"
_MOUNTS = "--proc /proc --dev /dev --tmpfs /tmp"


def install(source: Source | None = None) -> Toolchain:
    """Install the toolchain under `tools_home()`, replacing an older one.

    The default `source` is the image of a running engine if there is one, else debootstrap. Raises ToolMissingError if
    neither is available, InfrastructureError if the installation fails or its files do not work.
    """
    home = tools_home()
    home.mkdir(parents=True, exist_ok=True)
    fresh = home / f"root.{os.getpid()}"
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        try:
            export = _from_docker
            if source == "debootstrap":
                export = _from_debootstrap
            origin = export(fresh)
        except ToolMissingError:
            if source == "docker":
                raise
            origin = _from_debootstrap(fresh)
        manifest = {"made_of": origin, "inside": json.loads(_probe(fresh))}
        (fresh / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
        fresh.chmod(0o755)
        root = home / "root"
        old = home / f"root.{os.getpid()}.old"
        if root.exists():
            root.rename(old)
        fresh.rename(root)
        shutil.rmtree(old, ignore_errors=True)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    toolchain = Toolchain.installed()
    assert toolchain is not None
    return toolchain


def scripts() -> Path:
    """Directory of the scripts that build the image."""
    return Path(__file__).resolve().parents[1] / "sim"


def _from_docker(root: Path) -> str:
    """Export the image's files; return the image's digest."""
    import docker

    root.mkdir()
    try:
        with contextlib.closing(
            docker.APIClient(version="auto", timeout=600, **docker.utils.kwargs_from_env())
        ) as api:
            digest = str(api.inspect_image(IMAGE)["Id"])
            container = api.create_container(digest, command=["true"], network_disabled=True)[
                "Id"
            ]
            try:
                command = [*_UNPACK.split(), "-C", str(root)]
                with subprocess.Popen(command, stdin=subprocess.PIPE) as tar:
                    assert tar.stdin is not None
                    for part in api.export(container):
                        tar.stdin.write(part)
                    tar.stdin.close()
                if tar.returncode:
                    raise InfrastructureError(
                        f"the image's files cannot be written to {root}", "is the disk full?"
                    )
            finally:
                api.remove_container(container, force=True)
    except docker.errors.ImageNotFound as error:
        raise ToolMissingError(f"the image {IMAGE} is missing", BUILD) from error
    except docker.errors.DockerException as error:
        raise ToolMissingError(
            f"no Docker engine can export the image: {error}",
            "start one, or use --source debootstrap",
        ) from error
    return digest


def _from_debootstrap(root: Path) -> str:
    condition = "with debootstrap installed"
    if os.geteuid():
        condition = "as root"
    if os.geteuid() or not shutil.which("debootstrap"):
        raise ToolMissingError(
            f"there is no Docker engine with the image, and the toolchain can be built here only {condition}",
            "make sim-image; or run this as root after apt-get install debootstrap; or --source "
            "pip, for cocotb 1.9 alone",
        )
    # `bash script`, since wheels do not preserve the executable bit.
    command = ["bash", str(scripts() / "root.sh"), str(root)]
    environment = {**os.environ, "PYTHON": sys.executable}
    _run(command, "debootstrap failed", "check the network", env=environment)
    return "debootstrap"


def _probe(root: Path) -> str:
    """Run the probe in the new root, in a sandbox like the executor's; return its output."""
    command = [bwrap_path(), *_ISOLATION.split(), *root_binds(root)]
    command += [*_MOUNTS.split(), "--", *PROBE]
    return _run(command, "the new toolchain does not work", timeout=300)


def install_older_cocotb() -> Path:
    """Install cocotb 1.9 outside this environment with pip; return its directory. Raises
    InfrastructureError if pip fails."""
    target = tools_home() / "cocotb1"
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, *_PIP_INSTALL.split(), "--target", str(target), _OLDER]
    _run(command, f"pip could not install {_OLDER}", "check the network")
    return target


def _run(command: list[str], failed: str, hint: str | None = None, **how: Any) -> str:
    """Run a command and return what it prints. Raises InfrastructureError with the end of its complaint."""
    result = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    if result.returncode:
        complaint = result.stderr.strip()[-400:]
        raise InfrastructureError(f"{failed}: {complaint}", hint)
    return result.stdout
