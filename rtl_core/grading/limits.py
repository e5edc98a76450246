"""What one grade may use. The limits are part of a verdict's cache key."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Limits(BaseModel):
    """Resources of one compose service, and of the workspace that all services of a problem share."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    wall_s: float = Field(default=120.0, gt=0, le=3600)
    """Time of one service in which it computes or sleeps; what the machine does meanwhile is not counted. CVDP's own runner allows 600."""
    cpu_s: float = Field(default=120.0, gt=0, le=3600)
    """CPU time of all processes of one service together, and of any one process."""
    cpu_floor_s: float = Field(default=2.0, gt=0)
    """Where a known-good answer tells what is needed: the CPU time that an answer may use in any case (see budget.py)."""
    cpu_factor: float = Field(default=10.0, ge=1)
    """Where a known-good answer tells what is needed: how many times as much CPU time an answer may use."""
    memory_mb: int = Field(default=4096, ge=256)
    """Address space of any one process, and resident memory of all processes together, in MiB."""
    processes: int = Field(default=128, ge=16)
    """Processes and threads alive at one time."""
    file_mb: int = Field(default=256, ge=1)
    """Size of any one file, in MiB."""
    disk_mb: int = Field(default=512, ge=8)
    """Size of the whole workspace, which lives in memory, in MiB."""
    output_kb: int = Field(default=256, ge=4)
    """How much of a service's output is kept (its beginning and its end), in KiB."""
    output_mb: int = Field(default=64, ge=1)
    """A service that writes more than this is stopped, in MiB."""
