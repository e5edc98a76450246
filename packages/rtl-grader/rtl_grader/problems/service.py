"""The docker-compose.yml of a harness with one service, which runs a command in the sandbox."""

from __future__ import annotations

_COMPOSE = """\
services:

  {name}:
    image: __OSS_SIM_IMAGE__
    volumes:
      - ./src/:/src/:ro
    working_dir: /code/rundir
    env_file: ./src/.env
    command: {command}
"""


def compose_file(name: str, command: str) -> str:
    """The file for a service of this name. The harness' files below `src` are in `/src`."""
    return _COMPOSE.format(name=name, command=command)
