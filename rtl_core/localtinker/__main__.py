"""`python -m rtl_core.localtinker --model NAME=PATH ... --state DIR`: run the service in this process.

Prints one JSON line, {"base_url": ...}, on standard output when it is ready. The key comes from the environment
variable TINKER_API_KEY, never from the command line, which other users of the machine can read.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable

# Spinning OpenMP threads would take the cores from simulators; this must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from rtl_core import http_server
from rtl_core.errors import RtlDistillError
from rtl_core.localtinker.settings import Settings, build_parser, check_exposure, check_models, parse_model


def main(argv: list[str] | None = None) -> int:
    args = build_parser(__doc__).parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if args.die_with_parent:
        _die_with_parent()
    try:
        return serve(args, lambda base_url: print(json.dumps({"base_url": base_url}), flush=True))
    except RtlDistillError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


def serve(args: argparse.Namespace, announce: Callable[[str], None]) -> int:
    """Load the models and serve until the process is told to stop; `announce` gets the base URL once it answers."""
    key = os.environ.get("TINKER_API_KEY") or None
    models = dict(parse_model(text) for text in args.model)
    check_models(models)
    check_exposure(args.host, key)
    listener = http_server.listen(args.host, args.port)

    # Nothing that is imported here is ever let go: looking for garbage in it takes a fifth of the start.
    gc.disable()

    from rtl_core.localtinker.app import create_app
    from rtl_core.localtinker.service import Service

    gc.freeze()  # what was imported stays: collections need not walk it
    gc.enable()
    settings = Settings(
        models=models,
        state=args.state,
        dtype=args.dtype,
        device=args.device,
        threads=args.threads,
        sampling_processes=args.sampling_processes,
        deterministic=args.deterministic,
        max_context=args.max_context,
        idle_s=args.idle_seconds,
        housekeeping_s=args.housekeeping_seconds,
    )
    service = Service(settings)
    app = create_app(service, key)
    # The compute thread and the event loop share the interpreter: hand over sooner than every 5 ms.
    sys.setswitchinterval(0.001)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(http_server.serve(app, listener, announce, grace_s=2, lifespan="on"))
    return 0


def _die_with_parent() -> None:
    """End this process when its parent has gone: its end of our standard input closes, whatever killed it."""
    parent = os.getppid()

    def watch_pipe() -> None:
        while sys.stdin.buffer.read(4096):
            continue
        os._exit(0)

    def watch_parent() -> None:
        # A child that the parent forked may still hold the pipe open: being re-parented is the second sign.
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(0)

    for target in (watch_pipe, watch_parent):
        threading.Thread(target=target, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main())
