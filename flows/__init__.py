"""Prefect flows: what happens in which order. Each reads like a table of contents."""

import os

# Before Prefect is imported: a slow machine needs longer than the default to bring the temporary server up, nothing is sent
# home, and this project's log lines belong to the run's log.
os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "300")
# A server that is busy or away for some minutes must not end a run: 2 + 4 + ... + 256 seconds of patience.
os.environ.setdefault("PREFECT_CLIENT_MAX_RETRIES", "8")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("DO_NOT_TRACK", "1")
