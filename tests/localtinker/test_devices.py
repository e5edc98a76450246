"""The device that the models run on. The expectations hold on machines with a GPU and without one."""

from __future__ import annotations

import pytest
import torch

from rtl_core.errors import ConfigError
from rtl_core.localtinker.devices import device_for

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0


def test_small_models_run_on_the_cpu_and_larger_ones_on_a_gpu_if_there_is_one(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, size in ((small, 1000), (large, 64 << 20)):
        folder.mkdir()
        with (folder / "model.safetensors").open("wb") as file:
            file.truncate(size)
    assert device_for("auto", [small]) == "cpu"
    assert device_for("auto", [small, large]) == ("cuda" if GPUS else "cpu")
    assert device_for("cpu", [large]) == "cpu"


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(ConfigError, match=f"no device 'cuda:{GPUS}': this machine has {GPUS}"):
        device_for(f"cuda:{GPUS}", [])
    with pytest.raises(ConfigError, match="'gpu' is no device"):
        device_for("gpu", [])
