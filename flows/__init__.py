"""Prefect flows: what happens in which order. Each reads like a table of contents."""

import os

from rtl_distill.operations.loopback import PATIENT, QUIET, past_proxy

# Set before Prefect is imported: a slow machine needs more than the default time to start the temporary server.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "300")
os.environ.update(PATIENT | QUIET | os.environ)
# A temporary server and the embedded service are on this machine.
os.environ.update(past_proxy(os.environ))
