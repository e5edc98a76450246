"""Tiny random models, and services that all tests of this folder share. Unless a module says otherwise, tests use the public SDK."""

import os

import pytest

os.environ.setdefault("TINKER_TELEMETRY", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import tinker
import torch
from localtinker_helpers import connect, make_tokenizer
from transformers import Qwen3Config, Qwen3ForCausalLM

from localtinker.models import load_model
from localtinker.process import LocalTinker

torch.set_num_threads(1)  # leaves the cores to the service


def make_model(folder, *, seed, hidden=96, heads=3, inner=288):
    """Write a random Qwen3 of the shipped models' shape, with weights large enough for distributions that are not flat."""
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
def models_by_name(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    make_model(root / "student", seed=0)
    make_model(root / "teacher", seed=1, hidden=128, heads=4, inner=384)
    return {"student": root / "student", "teacher": root / "teacher"}


@pytest.fixture
def student(models_by_name):
    """The student, loaded in the test process."""
    return load_model(
        "student", models_by_name["student"], dtype="float32", device="cpu", max_context=2048
    )


@pytest.fixture(scope="session")
def tinker_service(models_by_name, tmp_path_factory):
    with LocalTinker(models_by_name, tmp_path_factory.mktemp("state")) as service:
        yield service


@pytest.fixture(scope="session")
def deterministic_service(models_by_name, tmp_path_factory):
    """A service in deterministic mode, for tests that compare tokens sampled in different batches."""
    with LocalTinker(
        models_by_name, tmp_path_factory.mktemp("deterministic"), deterministic=True
    ) as running:
        yield running


@pytest.fixture
def deterministic_client(deterministic_service):
    """A fresh session on the deterministic service."""
    with connect(deterministic_service) as service_client:
        yield service_client


@pytest.fixture
def client(tinker_service):
    """A fresh session on the shared service."""
    with connect(tinker_service) as service_client:
        yield service_client


@pytest.fixture
def sampler(client):
    """The student on the shared service."""
    return client.create_sampling_client(base_model="student").result()


@pytest.fixture
def rest(tinker_service):
    return tinker.RestClient(base_url=tinker_service.base_url, api_key=tinker_service.api_key)
