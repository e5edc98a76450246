"""`python -m rtl_core.localtinker SETTINGS`: the service as a child process of `process.LocalTinker`, which ends with its parent.

SETTINGS are `settings.Settings` in JSON. Prints one JSON line, {"base_url": ...}, on standard output when it is ready. The key comes from the
environment variable TINKER_API_KEY, never from the command line, which other users of the machine can read.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import select
import sys
import threading
from collections.abc import Callable

# Spinning OpenMP threads would take the cores from simulators; this must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from rtl_core import http_server
from rtl_core.errors import RtlDistillError
from rtl_core.localtinker.settings import Settings, check_exposure, check_models


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    try:
        settings = Settings.model_validate_json(sys.argv[1])
        key = os.environ.get("TINKER_API_KEY")
        serve(settings, key, lambda base_url: print(json.dumps({"base_url": base_url}), flush=True))
    except RtlDistillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def serve(settings: Settings, key: str | None, announce: Callable[[str], None]) -> None:
    """Load the models and serve until the process is told to stop; `announce` gets the base URL once it answers."""
    check_models(settings.models)
    check_exposure(settings.host, key)
    listener = http_server.listen(settings.host, settings.port)

    # Nothing that is imported here is ever let go: looking for garbage in it takes a fifth of the start.
    gc.disable()

    from rtl_core.localtinker.app import create_app
    from rtl_core.localtinker.service import Service

    gc.freeze()  # what was imported stays: collections need not walk it
    gc.enable()
    app = create_app(Service(settings), key)
    # The compute thread and the event loop share the interpreter: hand over sooner than every 5 ms.
    sys.setswitchinterval(0.001)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(http_server.serve(app, listener, announce, grace_s=2, lifespan="on"))


def _die_with_parent(parent: int) -> None:
    """End this process when its parent has gone, whatever killed it.

    Its end of our standard input closes then; where a child that it forked holds that open, too, being re-parented is the second sign.
    """
    while os.getppid() == parent and not select.select([sys.stdin], [], [], 1.0)[0]:
        continue
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
