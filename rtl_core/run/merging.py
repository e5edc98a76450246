"""Merging an adapter into its base model: the result is a folder that transformers loads without peft or this package.

One copy of the model is held in memory. Adapters of layers that are not linear (fused experts, for example)
are refused; tinker-cookbook's `weights.build_hf_model` merges those.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, get_args

from rtl_core.backend.base import Provider
from rtl_core.backend.start import known_folder
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError

Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
_NOT_COPIED = (
    ".*",
    "*.safetensors",
    "*.bin",
    "*.pt",
    "*.pth",
    "*.gguf",
    "*.h5",
    "*.msgpack",
    "*.onnx",
    "*.index.json",
    "config.json",
    "README.md",
)
"""Files of the base that are not copied: its weights, and those of which the merged model has its own."""


def base_folder(config: RunConfig, provider: Provider, folder: Path | None) -> Path:
    """Return the folder of the student's base model: `folder` if it is not None, else the one known on this machine.
    A shipped one only if the embedded service trained it: another service may give the name to another model.

    Raises:
        PolicyError: there is none, or it holds no weights.
    """
    name = config.tinker.student
    folder = folder or known_folder(config, name, shipped=provider.embedded(config))
    remedy = f'name the folder of its weights with --base FOLDER, or in [tinker.local_models] as "{name}" = "FOLDER"'
    if folder is None:
        raise PolicyError(
            f"the weights of the base model {name!r} were not found on this machine", remedy
        )
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    if not weights or not (folder / "config.json").is_file():
        raise PolicyError(
            f"{folder} contains no model with weights (config.json and *.safetensors)", remedy
        )
    return folder


def load_model(folder: Path, dtype: Dtype | None = None) -> Any:
    """Load the causal language model in a folder on the CPU. None: in the dtype in which it was saved.

    Raises:
        PolicyError: transformers cannot load it.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype) if dtype else "auto", local_files_only=True
        )
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise PolicyError(
            f"transformers cannot load {folder}: {str(error).splitlines()[0]}"
        ) from error
    return model.eval()


def dtype_of(folder: Path) -> Dtype:
    """Return the dtype of the model in a folder according to its configuration; float32 by default."""
    from transformers import AutoConfig

    dtype = AutoConfig.from_pretrained(folder, local_files_only=True).dtype
    name = str(dtype).removeprefix("torch.")
    return next((dtype for dtype in DTYPES if dtype == name), "float32")


def merged(model: Any, adapter: Path) -> Any:
    """Add the adapter in a peft folder to the model's weights in place: W + alpha / r B A. Returns the
    model, whose class stays the same.

    An output head that the adapter changes is untied from the input embeddings first.

    Raises:
        PolicyError: the adapter is for another model, is not plain LoRA, or has tensors that belong to no linear layer.
    """
    import torch

    from localtinker.lora import PREFIX, pairs_by_module, read_adapter

    config = json.loads((adapter / "adapter_config.json").read_text())
    if more := sorted(key for key in _MORE_THAN_LORA if config.get(key)):
        raise PolicyError(
            f"the adapter is not plain LoRA: its configuration sets {', '.join(more)}", _HINT
        )
    tensors = read_adapter(adapter)
    layers = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }
    used = {f"{PREFIX}{name}.lora_{part}.weight" for name in layers for part in "AB"}
    unused = sorted(tensors.keys() - used)
    if unused:
        raise PolicyError(
            f"{len(unused)} of {len(tensors)} tensors of the adapter fit no layer of the base "
            f"model, such as {unused[0]}",
            _HINT,
        )
    pairs, rank = pairs_by_module(tensors), config["r"]
    _untie_changed_head(model, pairs)
    for name, (lora_a, lora_b) in pairs.items():
        weight = layers[name].weight
        n_out, n_in = weight.shape
        if lora_b.shape != (n_out, rank) or lora_a.shape != (rank, n_in):
            shapes = f"{list(weight.shape)}, B {list(lora_b.shape)}, A {list(lora_a.shape)}"
            raise PolicyError(
                f"the adapter does not fit the base model: {name} is {shapes}", _HINT
            )
        term = lora_b.float() @ lora_a.float() * (config["lora_alpha"] / rank)
        if not term.isfinite().all():
            raise PolicyError(f"the adapter of {name} contains numbers that are not finite")
        weight.data += term.to(weight.dtype)
    return model


_MORE_THAN_LORA = (
    "alpha_pattern",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "use_dora",
    "use_rslora",
)
_HINT = (
    "check that --base is the model that was trained; merge experts in one tensor with "
    "tinker_cookbook.weights.build_hf_model"
)


def save_model(model: Any, base: Path, folder: Path, dtype: Dtype) -> None:
    """Write a model with the tokenizer, chat template, generation config and other files of its base.
    Rounds the model to `dtype` in place."""
    import torch

    model.to(getattr(torch, dtype)).save_pretrained(folder)
    mode = (folder / "config.json").stat().st_mode
    for file in folder.glob("*.safetensors"):
        file.chmod(mode)  # save_pretrained makes them readable by their owner only
    for file in filter(Path.is_file, base.iterdir()):
        if not any(map(file.match, _NOT_COPIED)):
            shutil.copyfile(file, folder / file.name)


def _untie_changed_head(model: Any, changed: Collection[str]) -> None:
    """Give the output head its own weights if it shares those of the input embeddings and the adapter changes it."""
    import torch

    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is not embeddings.weight:
        return
    (path,) = (name for name, module in model.named_modules() if module is head)
    if path not in changed:
        return
    head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = False
