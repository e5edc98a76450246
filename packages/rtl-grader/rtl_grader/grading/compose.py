"""Reads the part of docker-compose.yml that CVDP's harnesses use: services with command, env files and volumes.

As in CVDP's public runner, every service runs in /code/rundir whatever its `working_dir`, and volumes under /code are
ignored, since the workspace is there.

Not supported: builds other than FROM an image plus pip installs, networks, named volumes, host paths. A
harness that needs them raises InfrastructureError, since this is never the answer's fault.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from typing import Any

from rtl_grader.errors import InfrastructureError
from rtl_grader.grading.executors.base import (
    SOURCE_MOUNTS,
    Environment,
    Mount,
    Mounts,
    Step,
    Steps,
)
from rtl_grader.problems.cvdp import compose_services
from rtl_grader.problems.faults import FieldError
from rtl_grader.types.files import Files

WORKDIR = "/code/rundir"
DIRECTORIES = ("src", "rtl", "verif", "docs", "rundir")
"""Directories of the workspace."""
_QUOTED = re.compile(r"(['\"])(.*?)\1(?:\s+#.*)?")
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_]\w*)\s*[=:]\s*(.*?)\s*$")


def read_services(harness: Files) -> tuple[Steps, Mounts]:
    """Return the services of a harness as steps, in the file's order, and all their volumes.

    `harness` maps paths (`docker-compose.yml`, `src/.env`, ...) to texts. Raises InfrastructureError that names the
    unsupported service and key.
    """
    try:
        entries = compose_services(harness["docker-compose.yml"]).items()
    except (KeyError, FieldError) as error:
        raise InfrastructureError(
            f"the harness' docker-compose.yml cannot be read: {error!r}"
        ) from error
    steps = []
    mounts = [*SOURCE_MOUNTS]
    for name, service in entries:
        if not isinstance(service, dict):
            raise InfrastructureError(f"service {name} is not a mapping")
        env = _env_files(name, service.get("env_file"), harness)
        env.update(_environment(service.get("environment")))
        try:
            mounts += _volumes(name, service.get("volumes") or ())
            steps.append(
                Step(name=str(name), argv=_command(name, service), env=env, cwd=WORKDIR)
            )
        except (TypeError, ValueError) as error:
            raise InfrastructureError(f"service {name} cannot be read: {error}") from error
    return tuple(steps), tuple(dict.fromkeys(mounts))


def parse_env(text: str) -> Environment:
    """Parse an env file: `KEY = value` with any spacing, comments, optional `export` and quotes."""
    values = {}
    for line in text.splitlines():
        # A comment begins with `#` and so is no assignment.
        if match := _ASSIGNMENT.match(line):
            name, value = match.groups()
            quoted = _QUOTED.fullmatch(value)
            values[name] = quoted[2] if quoted else re.sub(r"\s+#.*$", "", value)
    return values


def _command(name: str, service: Mapping[str, Any]) -> tuple[str, ...]:
    words: list[str] = []
    for key in ("entrypoint", "command"):
        value = service.get(key)
        if isinstance(value, str):
            words += shlex.split(value.replace("$$", "$"))
        elif isinstance(value, list):
            words += [str(word).replace("$$", "$") for word in value]
    if not words:
        raise InfrastructureError(
            f"service {name} has no command, and its image's own is not known here"
        )
    return tuple(words)


def _env_files(name: str, value: object, harness: Files) -> Environment:
    entries = value if isinstance(value, list) else [value] if value else []
    values: Environment = {}
    for entry in entries:
        options = {"path": entry}
        if isinstance(entry, dict):
            options = entry
        path = options.get("path")
        plain = posixpath.normpath(str(path))
        if plain in harness:
            values.update(parse_env(harness[plain]))
        elif options.get("required") is not False:
            raise InfrastructureError(
                f"service {name}: the env file {path} is not part of the harness"
            )
    return values


def _environment(value: object) -> Environment:
    if isinstance(value, dict):
        return {str(key): _text(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return parse_env("\n".join(map(str, value)))
    return {}


def _text(value: object) -> str:
    """A value of YAML as compose passes it on."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _volumes(name: str, volumes: Any) -> list[Mount]:
    mounts = []
    for volume in volumes:
        if isinstance(volume, dict):
            source = volume.get("source")
            target = volume.get("target")
            read_only = bool(volume.get("read_only"))
        else:
            source, _, rest = str(volume).partition(":")
            target, _, mode = rest.partition(":")
            read_only = "ro" in mode.split(",")
        if str(target or source).startswith("/code"):
            continue
        if not source or not str(source).startswith(".") or not target:
            raise InfrastructureError(
                f"service {name}: the volume {volume} is not a directory of the workspace"
            )
        plain = posixpath.normpath(str(source))
        folder = plain.split("/")[0]
        if plain.startswith("..") or folder not in (*DIRECTORIES, "."):
            raise InfrastructureError(
                f"service {name}: the volume {volume} is outside the workspace"
            )
        if plain == ".":  # every service has the workspace
            continue
        inside = posixpath.normpath(str(target))
        if inside.split("/")[1:2] not in (["code"], ["src"], ["rundir"]):
            raise InfrastructureError(
                f"service {name}: the sandbox has /code, /src and /rundir, no {target} for a volume"
            )
        mounts.append(Mount(plain, inside, read_only))
    return mounts
