"""The choice of the device, with and without a GPU, matrix products, and memory allocation."""

import os
import subprocess
import sys

import pytest
import torch

from localtinker.devices import device_for, is_exact, use_fast_products
from localtinker.errors import SettingsError

SHAPES = """
import resource, torch
from localtinker.devices import use_fast_products
use_fast_products()
torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # use oneDNN on other processors as well
def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
weight = torch.ones(192, 64)
torch.ones(1500, 64) @ weight.t()
before = peak_mb()
for rows in range(1, 1200, 2):
    torch.ones(rows, 64) @ weight.t()
print(peak_mb() - before)
"""
GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0


def test_products_that_round_to_bfloat16_are_not_used(monkeypatch):
    mode = torch.backends.mkldnn.matmul
    monkeypatch.setattr(mode, "fp32_precision", mode.fp32_precision)  # restored afterwards
    monkeypatch.setattr(os, "environ", dict(os.environ))
    use_fast_products()
    a = torch.randn(64, 300, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        (a @ a.t()).double(), a.double() @ a.double().t(), rtol=0, atol=1e-3
    )
    assert not is_exact(lambda a, b: a.bfloat16().float() @ b.bfloat16().float())


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_product_shapes():
    clean = {
        name: value for name, value in os.environ.items() if not name.endswith("CACHE_CAPACITY")
    }
    done = subprocess.run(
        [sys.executable, "-c", SHAPES], env=clean, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 150  # 0.25 MB per shape if all are cached


def test_auto_uses_a_gpu_for_large_models_only(tmp_path):
    small, large = tmp_path / "small", tmp_path / "large"
    for folder, size in ((small, 1000), (large, 64 << 20)):
        folder.mkdir()
        with (folder / "model.safetensors").open("wb") as file:
            file.truncate(size)
    assert device_for("auto", [small]) == "cpu"
    assert device_for("auto", [small, large]) == ("cuda" if GPUS else "cpu")
    assert device_for("cpu", [large]) == "cpu"


def test_an_unavailable_device_is_named():
    with pytest.raises(
        SettingsError, match=f"no device 'cuda:{GPUS}': torch .* can use {GPUS} GPU"
    ):
        device_for(f"cuda:{GPUS}", [])
    with pytest.raises(SettingsError, match="'gpu' is not a device"):
        device_for("gpu", [])
