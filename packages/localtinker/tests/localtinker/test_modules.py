"""Bitwise equality of our modules and tokenizers with those of transformers, and the imports of a start. No HTTP."""

import copy
import json
import subprocess
import sys

import pytest
import torch
from localtinker_helpers import SHAPE, served
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    Qwen2Config,
    Qwen3Config,
)

from localtinker.models import load_model
from rtl_core.tinymodels import MODEL_NAMES, model_path

YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e4,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
CONFIGS = {
    "llama": LlamaConfig(**SHAPE),
    "llama, biases everywhere, tied": LlamaConfig(
        **SHAPE, attention_bias=True, mlp_bias=True, tie_word_embeddings=True
    ),
    "llama, head size of its own": LlamaConfig(**SHAPE, head_dim=32),
    "llama, linear rope": LlamaConfig(
        **SHAPE, rope_parameters={"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}
    ),
    "llama 3": LlamaConfig(**SHAPE, rope_parameters=LLAMA3),
    "qwen2": Qwen2Config(**SHAPE),
    "qwen3": Qwen3Config(**SHAPE, head_dim=32, tie_word_embeddings=True),
    "qwen3, yarn, biases": Qwen3Config(
        **SHAPE, head_dim=16, rope_parameters=YARN, attention_bias=True
    ),
}
TOKENS = torch.arange(3, 60).view(3, -1)


def plain(folder, dtype="float32"):
    """transformers' model, copied because the memory alignment of a matrix may change the bits of a product."""
    return copy.deepcopy(
        AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    ).eval()


def load(folder, dtype="float32"):
    return load_model("model", folder, dtype=dtype, device="cpu", max_context=4096)


def assert_same_bits(mine, theirs, tokens=TOKENS):
    assert mine.dense
    with torch.inference_mode():
        assert torch.equal(mine.model.lm_head(mine.hidden(tokens)), theirs(tokens).logits)
    assert mine.nbytes == sum(p.numel() * p.element_size() for p in theirs.parameters())
    assert (mine.max_context, mine.vocab_size) == (
        theirs.config.max_position_embeddings,
        theirs.config.vocab_size,
    )


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_of_every_family_are_bitwise_equal_to_transformers(tmp_path, name, dtype):
    served(tmp_path, CONFIGS[name])
    assert_same_bits(load(tmp_path, dtype), plain(tmp_path, dtype))


def old_configuration(folder):
    """config.json as transformers 4 wrote it."""
    raw = json.loads((folder / "config.json").read_text())
    raw["rope_theta"], raw["rope_scaling"] = raw.pop("rope_parameters")["rope_theta"], None
    raw.pop("layer_types", None)
    (folder / "config.json").write_text(json.dumps(raw))


def sparse_configuration(folder):
    """config.json without the keys that have defaults in transformers."""
    raw = json.loads((folder / "config.json").read_text())
    kept = ("architectures", "model_type", "head_dim", *SHAPE)
    (folder / "config.json").write_text(json.dumps({key: raw[key] for key in kept}))


def sharded(folder):
    plain(folder).save_pretrained(folder, max_shard_size="100KB")
    (folder / "model.safetensors").unlink()


def pickled(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def untied(folder):
    """A separate head, although the configuration ties it."""
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {**tensors, "lm_head.weight": tensors["lm_head.weight"] + 1},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**raw, "tie_word_embeddings": True}))


@pytest.mark.parametrize(
    "change", [old_configuration, sparse_configuration, sharded, pickled, untied]
)
def test_unusual_folders_are_read_as_by_transformers(tmp_path, change):
    served(tmp_path, Qwen3Config(**SHAPE, head_dim=32, tie_word_embeddings=False))
    change(tmp_path)
    assert_same_bits(load(tmp_path), plain(tmp_path))


def test_unsupported_configurations_are_left_to_transformers(tmp_path):
    windows = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    for number, config in enumerate(
        (Qwen2Config(**SHAPE, **windows), LlamaConfig(**SHAPE, hidden_act="gelu"))
    ):
        model = served(tmp_path / str(number), config)
        assert not model.dense
        with torch.inference_mode():
            mine, theirs = (
                model.model.lm_head(model.hidden(TOKENS)),
                plain(model.path)(TOKENS).logits,
            )
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_shipped_models_have_the_logits_end_tokens_and_texts_of_transformers(name):
    model, theirs = load(model_path(name)), plain(model_path(name))
    assert_same_bits(model, theirs)
    tokenizer = AutoTokenizer.from_pretrained(model_path(name))
    assert model.eos_ids == {theirs.generation_config.eos_token_id, tokenizer.eos_token_id}
    ids = torch.randint(
        0, len(tokenizer), (200, 12), generator=torch.Generator().manual_seed(0)
    ).tolist()
    for some in [*([n] for n in range(len(tokenizer))), *ids]:
        assert model.vocabulary.decode(some) == tokenizer.decode(some)


START = """
import sys
from pathlib import Path
from localtinker import app, service, settings
from rtl_core.tinymodels import model_path
models = {name: model_path(name) for name in ("student", "teacher")}
app.create_app(service.Service(settings.Settings(models=models, state=Path(sys.argv[1]))), "tml-x")
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_a_start_with_the_shipped_models_imports_no_unneeded_library(tmp_path):
    """Each of these takes at least as much of the start-up time as the whole package."""
    done = subprocess.run(
        [sys.executable, "-c", START, str(tmp_path)], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert {"torch", "tokenizers", "safetensors"} <= loaded
    assert not loaded & {
        "transformers",
        "peft",
        "tinker",
        "accelerate",
        "huggingface_hub",
        "sqlalchemy",
        "sympy",
    }
