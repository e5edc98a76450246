"""Prefect flows: what happens in which order. Each reads like a table of contents."""

import os

from rtl_distill.operations.loopback import past_proxy

# Set before Prefect is imported: a slow machine needs more than the default time to start the temporary
# server, and no telemetry is sent.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "300")
# A server that is busy or unreachable for some minutes must not end a run: retries for 2 + 4 + ... + 256 seconds.
os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "8")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
# A temporary server and the embedded service are on this machine.
os.environ.update(past_proxy(os.environ))
