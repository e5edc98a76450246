"""A server of SkyRL 0.4.0 with JAX on the CPU (`make test-engines` installs it into build/skyrl)."""

import json
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.common import ROOT as REPOSITORY
from rtl_core.errors import InfrastructureError
from rtl_core.tinymodels import model_path

ROOT = REPOSITORY / "build/skyrl"
COMPILED = REPOSITORY / "build/skyrl-compiled"
"""JAX's cache of compiled computations, kept between runs: each takes 4 to 35 s."""


START_S = 300.0


class SkyRL:
    """Serves one embedded model as `model` from the folder `state`, on a loopback port that stays the same
    after `kill` and `start`. Raises InfrastructureError when it does not start."""

    def __init__(self, model: str, state: Path, adapters: int = 8, rank: int = 32) -> None:
        self.model, self.state = model, state
        state.mkdir(parents=True, exist_ok=True)
        COMPILED.mkdir(parents=True, exist_ok=True)
        self.weights = state / "model"
        if not self.weights.exists():
            # JAX on a CPU computes in float32 only if the weights are stored so.
            folder = model_path(model)
            AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).save_pretrained(
                self.weights
            )
            AutoTokenizer.from_pretrained(folder).save_pretrained(self.weights)
        self.config = {"max_lora_adapters": adapters, "max_lora_rank": rank}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        served = ["--base-model", self.model, "--base-model-checkpoint-path", "/state/model"]
        kept = ["--checkpoints-base", "/state/checkpoints"]
        kept += ["--database-url", "sqlite:////state/tinker.db"]
        place = ["--host", "127.0.0.1", "--port", str(self.port)]
        backend = ["--backend", "jax", "--backend-config", json.dumps(self.config)]
        inside = ["uv", "run", "--extra", "jax", "-m", "skyrl.tinker.api"]
        inside += [*served, *kept, *place, *backend]
        with (self.state / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self._sandbox(), "--", *inside], stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_S
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                end = (self.state / "server.log").read_text(errors="replace")[-2000:]
                raise InfrastructureError(f"SkyRL does not start at {self.url}:\n{end}")
            time.sleep(0.2)
        return self

    def _sandbox(self) -> list[str]:
        folders = {"/state": self.state, "/compiled": COMPILED}
        binds = [word for to, at in folders.items() for word in ("--bind", str(at), to)]
        variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": "/state",
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": "/compiled",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
            "HF_HUB_OFFLINE": "1",
        }
        settings = [w for name, value in variables.items() for w in ("--setenv", name, value)]
        root = ["--bind", str(ROOT), "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
        return [
            "bwrap",
            *root,
            *binds,
            "--clearenv",
            *settings,
            "--unshare-pid",
            "--die-with-parent",
        ]

    def _ready(self) -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/api/v1/healthz").status_code == 200
        return False

    def kill(self) -> None:
        """Kill the server and its engine, like a crash: both are in bwrap's process namespace."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        with suppress(ProcessLookupError):
            self.kill()
