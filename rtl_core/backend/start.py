"""Checks of what a run starts with: weights, models and chat templates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rtl_core.backend.base import SAVED, Saved
from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError, PolicyError
from rtl_core.prompting.chat import Chat


def check_start(config: RunConfig, saved: Saved) -> None:
    """Raise PolicyError if a run cannot start from the weights of `tinker.start_from`."""
    section = config.tinker
    if saved.base_model != section.student:
        raise PolicyError(
            f"tinker.start_from: {section.start_from} was trained on {saved.base_model!r}, and "
            f"the student is {section.student!r}",
            f'set tinker.student = "{saved.base_model}", or start from another state',
        )
    if saved.rank not in (None, section.lora_rank):
        raise PolicyError(
            f"tinker.start_from: {section.start_from} has rank {saved.rank}, and tinker.lora_rank "
            f"is {section.lora_rank}",
            f"set tinker.lora_rank = {saved.rank}",
        )


def wanted_models(config: RunConfig) -> dict[str, str]:
    """Return a mapping of configuration key to base model for all models that a run samples or scores with,
    the student first. Teachers that are saved weights are not included (see `Backend.describe`)."""
    models = {"tinker.student": config.tinker.student, **config.tinker.named_teachers}
    return {key: name for key, name in models.items() if not name.startswith(SAVED)}


def known_folder(config: RunConfig, model: str, *, shipped: bool = True) -> Path | None:
    """Return the folder of a model on this machine: of `tinker.local_models`, of the package if `shipped`, or fetched.
    None if none is known. Raises PolicyError if the model was not fetched."""
    from rtl_core.pretrained import MODELS, model_folder
    from rtl_core.tinymodels import MODEL_NAMES, model_path

    if model in config.tinker.local_models:
        return config.tinker.local_models[model]
    if shipped and model in MODEL_NAMES:
        return model_path(model)
    return model_folder(model) if model in MODELS else None


def different_tokens(
    student: Chat, teacher: Chat, prompts: Sequence[list[dict[str, str]]]
) -> str | None:
    """Say how a teacher's tokens differ from the student's: its vocabulary, or its rendering of one of `prompts`. None:
    they do not, so that it can score the student's tokens themselves."""
    ours, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    different = [token for token, index in ours.items() if theirs.get(token) != index]
    if different:
        return f"{len(different):,} of {len(ours):,} tokens differ (such as {different[0]!r})"
    if any(student.encode(messages) != teacher.encode(messages) for messages in prompts):
        return "their chat templates differ"
    return None


def check_spans(config: RunConfig, key: str) -> None:
    """Raise ConfigError if a run uses a teacher with other tokens for what only equal tokens allow."""
    learning = config.learning
    if learning.asked_choices and not learning.self_taught:
        raise ConfigError(
            f"learning.algorithm: {learning.algorithm} compares next tokens, and those of {key} are not the student's",
            'set learning.algorithm = "grpo", which compares spans, or choose a teacher of the student\'s family',
        )
    if learning.episodes:
        raise ConfigError(
            f"learning.episodes: a conversation is one sequence in the student's tokens, and those of {key} differ",
            "set learning.episodes = false, or choose a teacher of the student's family",
        )
