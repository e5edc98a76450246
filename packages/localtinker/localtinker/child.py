"""A server as a child process of `process.Child`: its log, its end, and how it says that it is ready."""

from __future__ import annotations

import json
import logging
import os
import select
import sys
import threading
from collections.abc import Callable

from localtinker.errors import LocalTinkerError


def run(main: Callable[[], None]) -> int:
    """Run a server until it ends or its parent does. Returns the exit code."""
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        main()
    except LocalTinkerError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def announce(base_url: str) -> None:
    """Tell the parent that the server is ready."""
    print(json.dumps({"base_url": base_url}), flush=True)


def _die_with_parent(parent: int) -> None:
    """End this process when its parent dies, even by kill -9.

    Standard input closes then, unless another child of the parent holds it open; so the parent id is checked as well.
    """
    while os.getppid() == parent:
        closed, _, _ = select.select([sys.stdin], [], [], 1.0)
        if closed:
            break
    os._exit(0)
