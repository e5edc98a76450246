"""`python -m localtinker.bridge SETTINGS`: the bridge as a child process of `process.Bridge`.

SETTINGS is a JSON `BridgeSettings`. The keys are read from the environment: TINKER_API_KEY is the bridge's,
TINKER_UPSTREAM_API_KEY the engine's.
"""

from __future__ import annotations

import os
import sys

from localtinker.bridge.app import serve
from localtinker.child import announce, run
from localtinker.settings import BridgeSettings


def main() -> None:
    settings = BridgeSettings.model_validate_json(sys.argv[1])
    serve(settings, os.environ["TINKER_API_KEY"], announce)


if __name__ == "__main__":
    sys.exit(run(main))
