"""Images of the Docker executor: the simulation image, and images that a harness' Dockerfile derives from it."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rtl_core.errors import InfrastructureError
from rtl_core.grading.executors.toolchain import PROBE, SIM_PYTHON, Toolchain

IMAGE = "rtl-distill-sim"
_ANY_PYTHON = (
    f'for python in {SIM_PYTHON} python3; do command -v "$python" >/dev/null && exec "$python" -c "$0"; done; exit 127'
)
"""Runs the probe with our Python, or with the one on the image's PATH."""
BUILD = "make sim-image (deployments/sim/build.sh)"


def image_toolchain(api: Any, name: str, labels: Mapping[str, str]) -> Toolchain:
    """Return the toolchain of an image by running the probe in it. Raises InfrastructureError if image or tools are missing."""
    import docker.errors

    try:
        digest = api.inspect_image(name)["Id"]
    except docker.errors.ImageNotFound as error:
        raise InfrastructureError(f"the image {name} is missing", BUILD) from error
    try:
        container = api.create_container(
            digest,
            entrypoint=["sh", "-c", _ANY_PYTHON, PROBE[-1]],
            labels=dict(labels),
            network_disabled=True,
            host_config=api.create_host_config(network_mode="none", cap_drop=["ALL"]),
        )["Id"]
        try:
            api.start(container)
            code = api.wait(container)["StatusCode"]
            output = str(api.logs(container, stderr=code != 0).decode())
        finally:
            with contextlib.suppress(Exception):
                api.remove_container(container, force=True, v=True)
    except docker.errors.APIError as error:
        raise InfrastructureError(f"the engine cannot start a container: {error}", "is its disk full?") from error
    if code:
        raise InfrastructureError(f"the image {name} lacks what grading needs: {output.strip()[-300:]}", BUILD)
    return Toolchain.of_root(json.loads(output), {"image": digest})


class DerivedImages:
    """Builds images with a harness' additions to the simulation image, each once; the engine keeps them. Thread-safe."""

    def __init__(self, api: Any, base: Toolchain) -> None:
        self._api, self._base = api, base
        self._lock = threading.Lock()
        self._known: dict[str, str] = {}

    def digest(self, dockerfile: str | None) -> str:
        """Return the image of a harness, built if needed. Raises InfrastructureError if its additions cannot be installed."""
        additions = [line for line in instructions(dockerfile or "") if not self._has(line)]
        if not additions:
            return self._base.tools["image"]
        key = "\n".join(additions)
        with self._lock:
            # Held while building, so that each image is built once.
            if key not in self._known:
                self._known[key] = self._build(additions)
            return self._known[key]

    def _has(self, instruction: str) -> bool:
        """Whether an instruction only pip-installs packages that the image has."""
        match = re.fullmatch(r"RUN\s+(?:python3?\s+-m\s+)?pip3?\s+install\s+(.+)", instruction, re.S)
        if not match:
            return False
        return all(self._base.has_package(word) for word in match[1].split() if not word.startswith("-"))

    def _build(self, additions: list[str]) -> str:
        import docker.errors

        text = "\n".join([f"FROM {self._base.tools['image']}", *additions]) + "\n"
        tag = f"{IMAGE}-derived:{uuid.uuid5(uuid.NAMESPACE_OID, text).hex[:16]}"
        with contextlib.suppress(docker.errors.ImageNotFound):
            return str(self._api.inspect_image(tag)["Id"])
        folder = Path(tempfile.mkdtemp(prefix="rtl-distill-image-"))
        (folder / "Dockerfile").write_text(text)
        try:
            log = list(
                self._api.build(path=str(folder), tag=tag, network_mode="host", rm=True, forcerm=True, decode=True)
            )
            failed = next((line["error"] for line in log if "error" in line), None)
        except docker.errors.APIError as error:
            failed = str(error)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if failed:
            raise InfrastructureError(
                f"the harness' own additions to the image ({'; '.join(additions)[:200]}) cannot be installed: "
                f"{failed.strip()[-200:]}",
                "check the network, or build the image with them (deployments/sim/requirements.txt)",
            )
        return str(self._api.inspect_image(tag)["Id"])


def instructions(dockerfile: str) -> list[str]:
    """Instructions of a harness' Dockerfile that change the image, one per entry, without comments."""
    text = re.sub(r"\\\s*\n", " ", re.sub(r"^\s*#.*$", "", dockerfile, flags=re.M))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return [line for line in lines if not re.match(r"FROM\b|CMD\b|ENTRYPOINT\b|WORKDIR\b|LABEL\b|EXPOSE\b", line, re.I)]
