"""Tiny random models, and one service over them for the whole room.

Every test talks to the service through the public SDK, unless its module says otherwise.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tinker
import torch
from localtinker_helpers import connect, make_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from rtl_core.localtinker.process import LocalTinker

torch.set_num_threads(1)  # what runs in the test process is tiny, and the service beside it wants the cores


def make_model(folder: Path, *, seed: int, hidden: int = 96, heads: int = 3, inner: int = 288) -> None:
    """A random Qwen3 of the shipped models' shape, with weights large enough that its distributions are not flat."""
    tokenizer = make_tokenizer()
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=3,
        num_attention_heads=heads,
        num_key_value_heads=1,
        head_dim=32,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
        initializer_range=0.08,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="session")
def models_by_name(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    make_model(root / "student", seed=0)
    make_model(root / "teacher", seed=1, hidden=128, heads=4, inner=384)
    return {"student": root / "student", "teacher": root / "teacher"}


@pytest.fixture(scope="session")
def tinker_service(models_by_name: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalTinker]:
    with LocalTinker(models_by_name, tmp_path_factory.mktemp("state")) as service:
        yield service


@pytest.fixture(scope="session")
def deterministic_service(
    models_by_name: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalTinker]:
    """The service that promises bits: for tests that compare sampled tokens of batches of different make-up."""
    with LocalTinker(models_by_name, tmp_path_factory.mktemp("deterministic"), deterministic=True) as running:
        yield running


@pytest.fixture
def deterministic_client(deterministic_service: LocalTinker) -> Iterator[tinker.ServiceClient]:
    """A fresh session on the service that promises bits."""
    with connect(deterministic_service) as service_client:
        yield service_client


@pytest.fixture
def client(tinker_service: LocalTinker) -> Iterator[tinker.ServiceClient]:
    """A fresh session on the shared service."""
    with connect(tinker_service) as service_client:
        yield service_client


@pytest.fixture
def rest(tinker_service: LocalTinker) -> tinker.RestClient:
    return tinker.RestClient(base_url=tinker_service.base_url, api_key=tinker_service.api_key)
