"""Requests to this machine do not go through a proxy, which could not answer them."""

from __future__ import annotations

from collections.abc import Mapping


def past_proxy(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with which programs bypass a configured proxy for loopback, besides the hosts that the
    environment names."""
    named = (environment.get("no_proxy") or environment.get("NO_PROXY") or "").split(",")
    # "*" bypasses the proxy for all hosts, but some libraries accept it only alone.
    ours = [] if "*" in named else ["127.0.0.1", "localhost"]
    hosts = ",".join(dict.fromkeys([*filter(None, named), *ours]))
    return {"no_proxy": hosts, "NO_PROXY": hosts}
