"""Our adapters against peft. No HTTP."""

import sys

import pytest
import torch
from localtinker_helpers import SHAPE, served
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig

from localtinker.lora import LoraSpec, read_adapter, write_adapter

MODELS = {
    "of our modules": Qwen3Config(**SHAPE, head_dim=16, tie_word_embeddings=True),
    "of transformers": Qwen3MoeConfig(
        **SHAPE, head_dim=16, moe_intermediate_size=32, num_experts=4, num_experts_per_tok=2
    ),
}
TOKENS = torch.arange(3, 40)[None]
SPEC = LoraSpec(rank=4, seed=1)


def plain(model, dtype="float32"):
    return AutoModelForCausalLM.from_pretrained(model.path, dtype=getattr(torch, dtype)).eval()


def logits(model):
    return model.model.lm_head(model.hidden(TOKENS))


def close(mine, theirs, computed_in=None):
    """Assert equality up to rounding, which may depend on the memory alignment of a matrix."""
    largest = float(theirs.detach().abs().max())
    within = largest * (1e-5 if (computed_in or mine.dtype) == torch.float32 else 0.05)
    torch.testing.assert_close(mine, theirs, atol=within, rtol=0)


def trained(bank, name, seed):
    """Add an adapter with B != 0."""
    bank.add(name, SPEC)
    generator = torch.Generator().manual_seed(seed)
    for parameter in bank.parameters(name):
        parameter.data.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_peft_loads_a_saved_adapter_and_computes_the_same(tmp_path, kind, dtype):
    model = served(tmp_path / "model", MODELS[kind], dtype)
    trained(model.adapters, "run", 2)
    model.adapters.activate("run")
    mine = logits(model)
    mine.float().square().sum().backward()
    (tmp_path / "adapter").mkdir()
    write_adapter(tmp_path / "adapter", model.adapters.tensors("run"), SPEC, str(model.path))
    theirs = PeftModel.from_pretrained(
        plain(model, dtype), tmp_path / "adapter", is_trainable=True
    )
    expected = theirs(TOKENS).logits
    close(mine, expected)
    expected.float().square().sum().backward()
    gradients = {
        n.replace(".default", ""): p.grad
        for n, p in theirs.named_parameters()
        if p.requires_grad
    }
    assert gradients.keys() == model.adapters.tensors("run").keys()
    for name, (lora_a, lora_b) in model.adapters.pairs("run").items():
        close(lora_a.grad, gradients[f"base_model.model.{name}.lora_A.weight"], mine.dtype)
        close(lora_b.grad, gradients[f"base_model.model.{name}.lora_B.weight"], mine.dtype)


def test_a_folder_written_by_peft_is_loaded(tmp_path):
    model = served(tmp_path / "model", MODELS["of our modules"])
    model.adapters.add("run", SPEC)
    config = LoraConfig(
        r=4,
        lora_alpha=32,
        target_modules=list(model.adapters.pairs("run")),
        task_type="CAUSAL_LM",
    )
    theirs = get_peft_model(plain(model), config)
    for name, parameter in theirs.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(std=0.05)
    theirs.save_pretrained(tmp_path / "adapter")
    model.adapters.load("run", read_adapter(tmp_path / "adapter"))
    model.adapters.activate("run")
    close(logits(model), theirs(TOKENS).logits)


def test_only_the_active_adapter_computes_and_has_gradients(tmp_path):
    model = served(tmp_path, MODELS["of our modules"])
    base = logits(model)
    for number, name in enumerate(("first", "second")):
        trained(model.adapters, name, number)
    assert torch.equal(logits(model), base)
    model.adapters.activate("first")
    first = logits(model)
    model.adapters.activate("second")
    second = logits(model)
    assert not torch.equal(first, base)
    assert not torch.equal(first, second)
    second.sum().backward()
    assert all(p.grad is None for p in model.adapters.parameters("first"))
    assert all(p.grad is not None for p in model.adapters.parameters("second"))
    model.adapters.remove("second")
    assert torch.equal(logits(model), base)
    model.adapters.activate("first")
    assert torch.equal(logits(model), first)


def test_reading_adapters_leaks_no_memory(tmp_path):
    tensors = {
        f"layer.{i}.lora_{part}.weight": torch.zeros(4, 4) for i in range(20) for part in "AB"
    }
    write_adapter(tmp_path, tensors, SPEC, "model")
    read_adapter(tmp_path)
    before = sys.getallocatedblocks()
    for _ in range(50):
        read_adapter(tmp_path)
    assert sys.getallocatedblocks() - before < 1000  # a leak of two per tensor would be 4000
