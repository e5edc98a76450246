"""Variables of Prefect's programs on this machine."""

from __future__ import annotations

from collections.abc import Mapping

QUIET = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
"""No telemetry is sent."""
PATIENT = {"PREFECT_CLIENT_MAX_RETRIES": "8"}
"""A server that is busy or unreachable for some minutes must not end a run: retries for 2 + 4 + ... + 256 seconds."""


def past_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with which requests to this machine do not go through a proxy, which could not answer them; nor do
    those to the hosts that the environment names."""
    named = (environment.get("no_proxy") or environment.get("NO_PROXY") or "").split(",")
    # "*" bypasses the proxy for all hosts, but some libraries accept it only alone.
    ours = [] if "*" in named else ["127.0.0.1", "localhost"]
    hosts = ",".join(dict.fromkeys([*filter(None, named), *ours]))
    return {"no_proxy": hosts, "NO_PROXY": hosts}
