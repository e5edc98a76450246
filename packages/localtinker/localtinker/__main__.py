"""`python -m localtinker SETTINGS`: the service as a child process of `process.LocalTinker`. It ends when
its parent does.

SETTINGS is a JSON `settings.Settings`. When ready, it prints one JSON line, {"base_url": ...}, to standard
output. The key is read from the environment variable TINKER_API_KEY, because other users of the machine can
read the command line.
"""

from __future__ import annotations

import gc
import os
import sys

# Spinning OpenMP threads would take CPU time from simulators. Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from localtinker import http_server
from localtinker.child import announce, run
from localtinker.settings import Announce, Settings, check_exposure, check_models


def main() -> None:
    settings = Settings.model_validate_json(sys.argv[1])
    serve(settings, os.environ.get("TINKER_API_KEY"), announce)


def serve(settings: Settings, key: str | None, announce: Announce) -> None:
    """Load the models and serve until the process is stopped. `announce` receives the base URL once the
    service answers."""
    check_models(settings.models)
    check_exposure(settings.host, key)
    listener = http_server.listen(settings.host, settings.port)
    gc.disable()  # imported modules are never freed; collecting meanwhile takes a fifth of the start-up time

    from localtinker.app import create_app
    from localtinker.service import Service

    gc.freeze()  # later collections skip the imported modules
    gc.enable()
    app = create_app(Service(settings), key)
    # The default of 5 ms is too long for the event loop to wait for the compute thread.
    sys.setswitchinterval(0.001)
    http_server.serve(app, listener, announce)


if __name__ == "__main__":
    sys.exit(run(main))
