"""Checks of what a run starts with: weights, models and chat templates."""

from __future__ import annotations

from collections.abc import Sequence

from rtl_core.backend.base import SAVED, Saved
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError
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


def check_same_tokens(
    student: Chat, teacher: Chat, prompts: Sequence[list[dict[str, str]]]
) -> None:
    """Raise PolicyError unless student and teacher have equal vocabularies and render all `prompts` to the
    same tokens. Otherwise the teacher would score different texts."""
    ours, theirs = student.tokenizer.get_vocab(), teacher.tokenizer.get_vocab()
    different = [token for token, index in ours.items() if theirs.get(token) != index]
    if different:
        raise PolicyError(
            f"student and teacher have different tokenizers: {len(different)} of {len(ours)} "
            f"tokens differ (such as {different[0]!r})",
            "token-level distillation needs a common tokenizer; choose a teacher of the student's "
            "family or set learning.kl_weight = 0",
        )
    for messages in prompts:
        if student.encode(messages) != teacher.encode(messages):
            raise PolicyError(
                "student and teacher render the same chat messages to different tokens: their chat templates differ",
                "choose a teacher with the student's chat template",
            )
