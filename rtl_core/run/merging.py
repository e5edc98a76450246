"""An adapter merged into its base model: a folder that transformers loads without peft and without this package.

The whole model is held in memory once. What peft cannot apply to the base (adapters of fused experts, for
example) is refused; tinker-cookbook's `weights.build_hf_model` merges those.
"""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any, Literal, get_args

from rtl_core.backend.base import Provider
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError
from rtl_core.pretrained import MODELS, model_folder
from rtl_core.tinymodels import MODEL_NAMES, model_path

Dtype = Literal["float32", "bfloat16", "float16"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".index.json")
_WRITTEN = ("config.json", "README.md")
"""Files of the base that the merged model has its own of."""


def base_folder(config: RunConfig, provider: Provider, given: Path | None) -> Path:
    """The folder of the student's base model: the one that is given, that of `tinker.local_models`, a model that was fetched, or one of this
    package.

    Raises:
        PolicyError: there is none, or it holds no weights.
    """
    name = config.tinker.student
    folder = given or config.tinker.local_models.get(name)
    if folder is None and name in MODELS:
        folder = model_folder(name)
    elif folder is None and provider.embedded(config):
        folder = next((model_path(shipped) for shipped in MODEL_NAMES if shipped == name), None)
    remedy = f'name the folder of its weights with --base FOLDER, or in [tinker.local_models] as "{name}" = "FOLDER"'
    if folder is None:
        raise PolicyError(
            f"the weights of {name!r}, which the adapter belongs to, are not known on this machine", remedy
        )
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")) | any(folder.glob("*.bin")):
        raise PolicyError(f"{folder} holds no model with weights (config.json and *.safetensors)", remedy)
    return folder


def load_model(folder: Path, dtype: Dtype | None = None) -> Any:
    """The causal language model in a folder, on the CPU; None: in the dtype that it was saved in.

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
        raise PolicyError(f"transformers cannot load {folder}: {str(error).splitlines()[0]}") from error
    return model.eval()


def dtype_of(folder: Path) -> Dtype:
    """The dtype that the model in a folder was saved in, as its configuration says; float32 where that says nothing else."""
    from transformers import AutoConfig

    found = str(AutoConfig.from_pretrained(folder, local_files_only=True).dtype).removeprefix("torch.")
    return next((dtype for dtype in DTYPES if dtype == found), "float32")


def merged(model: Any, adapter: Path) -> Any:
    """The model with the adapter in a peft folder added to its weights, in place; it is the same class as before.

    An output head that the adapter changes is untied from the input embeddings first.

    Raises:
        PolicyError: the adapter is not of this model, or peft has no use for some of its tensors.
    """
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    with safe_open(adapter / "adapter_model.safetensors", "pt") as tensors:
        names = set(tensors.keys())
    _untie_changed_head(model, names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft tells of tensors that do not fit; they are counted here
        try:
            wrapped: Any = PeftModel.from_pretrained(model, str(adapter))
        except (ValueError, RuntimeError, KeyError) as error:
            reason = str(error).splitlines()[0]
            raise PolicyError(f"the adapter does not fit the base model: {reason}", _HINT) from error
        unused = sorted(names - set(get_peft_model_state_dict(wrapped)))
    if unused:
        raise PolicyError(
            f"{len(unused)} of {len(names)} tensors of the adapter fit no layer of the base model, such as {unused[0]}",
            _HINT,
        )
    return wrapped.merge_and_unload(safe_merge=True)


_HINT = "check that --base is the model that was trained; experts in one tensor: merge with tinker_cookbook.weights.build_hf_model"


def save_model(model: Any, base: Path, folder: Path, dtype: Dtype) -> None:
    """Write a model with tokenizer, chat template, generation config and what else lies beside the weights of its base. The model itself is
    rounded to `dtype` by this."""
    import torch

    model.to(getattr(torch, dtype)).save_pretrained(folder)
    for file in folder.glob("*.safetensors"):  # which it writes for their owner alone
        file.chmod((folder / "config.json").stat().st_mode)
    for file in base.iterdir():
        named = file.name.startswith(".") or file.name in _WRITTEN or file.name.endswith(_WEIGHTS)
        if file.is_file() and not named:
            shutil.copyfile(file, folder / file.name)


def _untie_changed_head(model: Any, names: set[str]) -> None:
    """Give the output head weights of its own where it shares the input embeddings' and the adapter changes it."""
    import torch

    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    if head is None or head.weight is not embeddings.weight:
        return
    (path,) = (name for name, module in model.named_modules() if module is head)
    if not any(f".{path}.lora_" in name for name in names):
        return
    head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    for config in (model.config, model.config.get_text_config()):
        config.tie_word_embeddings = False
