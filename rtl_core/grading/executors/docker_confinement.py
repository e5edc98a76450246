"""What holds every container of the Docker executor: its limits and all that it may not do."""

from __future__ import annotations

import os
from typing import Any

from rtl_core.grading.executors.seccomp import profile
from rtl_core.grading.limits import Limits

UID = 61000
CPUS = 2
SPARE_MB = 1024


def host(limits: Limits, runtime: str | None) -> dict[str, Any]:
    """Arguments of `create_host_config`; `runtime` None is the engine's own choice."""
    # The agent watches the limit itself; the kernel's own, at which everything inside crawls, stands well behind it.
    memory = (limits.memory_mb + limits.disk_mb + SPARE_MB) << 20
    return {
        "runtime": runtime,
        "tmpfs": _tmpfs(limits),
        "network_mode": "none",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges", f"seccomp={profile()}"],
        "read_only": True,
        "mem_limit": memory,
        "memswap_limit": memory,
        "pids_limit": limits.processes + 16,
        "nano_cpus": min(CPUS, os.cpu_count() or 1) * 1_000_000_000,
        "log_config": {"Type": "none", "Config": {}},
    }


def container() -> dict[str, Any]:
    """Arguments of `create_container`."""
    return {"user": f"{UID}:{UID}", "working_dir": "/", "network_disabled": True}


def _tmpfs(limits: Limits) -> dict[str, str]:
    own = f"rw,exec,nosuid,nodev,uid={UID},gid={UID},mode=0755"
    return {
        "/code": f"{own},size={limits.disk_mb}m",
        "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={limits.disk_mb}m",
        "/rundir": f"{own},size=16m",
        "/dev/shm": f"rw,nosuid,nodev,mode=1777,size={min(64, limits.disk_mb)}m",
    }
