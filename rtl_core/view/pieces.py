"""The text of each token, by a tokenizer on this machine; nothing is downloaded."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path

from rtl_core.history.records import RunRecord
from rtl_core.pretrained import MODELS, models_folder
from rtl_core.tinymodels import MODEL_NAMES, model_path
from rtl_core.types.rollout import PolicyName

Decoder = Callable[[list[int]], str]


def pieces(
    run: RunRecord | None,
    tokens: Sequence[int],
    tokenizer: str | None = None,
    model: str | None = None,
) -> list[str] | None:
    """The text of each token by `tokenizer` (folder or name), by default that of the run's `model`, by default the
    student; None if there is no tokenizer."""
    source = tokenizer or _tokenizer_of(run, model)
    decode = None if source is None else _decoder(source)
    if decode is None:
        return None
    texts = {token: decode([token]) for token in set(tokens)}
    return [texts[token] for token in tokens]


def writer_of(run: RunRecord | None, policy: PolicyName, source: str | None) -> str | None:
    """The model that wrote an answer to a problem of a `source`: None: the student, or weights saved from it."""
    if run is None or policy == "student":
        return None
    tinker = run.config.get("tinker") or {}
    name = (tinker.get("teachers") or {}).get(source) or tinker.get("teacher")
    return None if not name or name.startswith("tinker://") else str(name)


def _tokenizer_of(run: RunRecord | None, model: str | None) -> str | None:
    """The tokenizer of a model of the run: a local folder, or a name on the Hugging Face hub."""
    name = model or (run and run.student)
    if run is None or not name:
        return None
    tinker = run.config.get("tinker") or {}
    local = (tinker.get("local_models") or {}).get(name)
    if local:
        return str(local)
    if tinker.get("base_url") == "local" and name in MODEL_NAMES:
        return str(model_path(name))
    if tinker.get("base_url") == "local" and name in MODELS:
        return str(models_folder() / name)
    return name


@functools.lru_cache(maxsize=4)
def _decoder(source: str) -> Decoder | None:
    """The tokenizer in a folder, or in the hub's cache under that name."""
    file = Path(source) / "tokenizer.json"
    if not file.exists():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            cached = try_to_load_from_cache(source, "tokenizer.json")
            other = cached or try_to_load_from_cache(source, "tokenizer_config.json")
        except HFValidationError:
            return None
        if not isinstance(cached, str):
            return _other(source) if isinstance(other, str) else None
        file = Path(cached)
    from tokenizers import Tokenizer

    loaded = Tokenizer.from_file(str(file))
    return lambda ids: str(loaded.decode(ids, skip_special_tokens=False))


def _other(source: str) -> Decoder | None:
    """A tokenizer without tokenizer.json; importing transformers takes seconds."""
    from transformers import AutoTokenizer

    try:
        loaded = AutoTokenizer.from_pretrained(source, local_files_only=True)
    except (OSError, ValueError):
        return None
    return lambda ids: str(loaded.decode(ids))
