"""The arithmetic of `benchmarks.gpu_memory` agrees with torch and with the embedded service's modules."""

from dataclasses import replace

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from benchmarks.gpu_memory import FAMILY, MOE_35B, Dense, free_bytes, longest_text
from localtinker.lora import AdapterBank, LoraSpec
from localtinker.modules import DenseConfig, DenseModel, Rotary

TOKENS, RANK = 64, 8


def config_of(sizes: Dense, layers: int) -> DenseConfig:
    return DenseConfig(
        model_type="qwen3", rms_norm_eps=1e-6, max_position_embeddings=4096, eos_token_id=0,
        tie_word_embeddings=sizes.tied, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
        vocab_size=sizes.vocabulary, hidden_size=sizes.hidden, intermediate_size=sizes.inner,
        num_hidden_layers=layers, num_attention_heads=sizes.queries // 128,
        num_key_value_heads=sizes.keys // 128, head_dim=128,
    )  # fmt: skip


def model_of(sizes: Dense, layers: int, tmp_path, device: str = "cpu") -> DenseModel:
    config = config_of(sizes, layers)
    rotary = Rotary(config, tmp_path, "cpu")
    with torch.device(device):
        return DenseModel(config, rotary)


@pytest.mark.parametrize("sizes", FAMILY, ids=lambda sizes: sizes.name)
def test_parameters_are_those_of_the_model_and_its_adapter(tmp_path, sizes):
    model = model_of(sizes, sizes.layers, tmp_path, "meta")
    assert sizes.parameters == sum(p.numel() for p in model.parameters())
    few = replace(sizes, layers=1, vocabulary=256)
    bank = AdapterBank(model_of(few, 1, tmp_path))
    bank.add("a", LoraSpec(rank=RANK, seed=1))
    assert few.adapter(RANK) == sum(p.numel() for p in bank.parameters("a"))


@pytest.mark.parametrize(
    "changes", [{}, {"hidden": 512}, {"inner": 1024}, {"queries": 1024}, {"keys": 512}]
)
def test_a_layer_keeps_the_bytes_that_the_formula_gives(tmp_path, changes):
    sizes = replace(
        FAMILY[0], layers=1, hidden=256, inner=512, queries=512, keys=256, vocabulary=256
    )
    sizes = replace(sizes, **changes)
    model = model_of(sizes, 1, tmp_path).to(torch.bfloat16).requires_grad_(False)
    bank = AdapterBank(model)
    bank.add("a", LoraSpec(rank=RANK, seed=1))
    bank.activate("a")
    weights = {p.data_ptr() for p in (*model.parameters(), *bank.parameters("a"))}
    kept: dict[int, torch.Tensor] = {}

    def pack(tensor):
        kept[tensor.untyped_storage().data_ptr()] = (
            tensor  # kept alive, so that no address repeats
        )
        return tensor

    x = torch.randn(1, TOKENS, sizes.hidden, dtype=torch.bfloat16).requires_grad_()
    angles = torch.ones(1, TOKENS, 128, dtype=torch.bfloat16)
    with saved_tensors_hooks(pack, lambda tensor: tensor):
        model.model.layers[0](x, angles, angles)
    nbytes = sum(t.untyped_storage().nbytes() for at, t in kept.items() if at not in weights)
    assert nbytes / TOKENS == pytest.approx(sizes.kept_bytes(RANK), rel=0.1)


def test_the_mixture_has_the_sizes_of_its_configuration():
    from transformers import Qwen3_5MoeForCausalLM
    from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig

    config = Qwen3_5MoeTextConfig()  # its defaults are those of Qwen3.5-35B-A3B
    with torch.device("meta"):
        model = Qwen3_5MoeForCausalLM(config)
    parameters = {name: p.numel() for name, p in model.named_parameters()}
    experts = sum(n for name, n in parameters.items() if ".experts." in name)
    assert experts == MOE_35B.experts
    assert sum(parameters.values()) == pytest.approx(MOE_35B.parameters, rel=1e-3)
    full = config.layer_types.count("full_attention")
    cached = 2 * 2 * full * config.num_key_value_heads * config.head_dim
    assert (cached, config.num_key_value_heads) == (MOE_35B.cache_bytes, MOE_35B.key_heads)
    linear = [
        m for n, m in model.named_modules() if type(m) is torch.nn.Linear and n != "lm_head"
    ]
    shared = config.num_hidden_layers * (2 * 2048 + 3 * 512)
    adapter = sum(m.in_features + m.out_features for m in linear) + shared
    assert adapter == pytest.approx(MOE_35B.adapter, rel=0.01)


def test_a_model_that_fills_the_gpu_trains_on_no_text():
    large = FAMILY[-1]
    assert longest_text(large, free_bytes(80, large), 32) == 0
    assert longest_text(large, free_bytes(141, large), 32) > 16_384
