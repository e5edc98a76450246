"""The configuration section `[tinker]`: models and the services that serve them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from rtl_core.types.numbers import Count
from rtl_grader.types.section import Section


class TinkerSection(Section):
    base_url: str | None = None
    """`local`: the embedded service, started and stopped by the run. A URL: the service at that address.
    Default: Tinker's cloud."""
    teacher_base_url: str | None = None
    """Separate service for the teachers: a URL, `local` (the embedded service), or `cloud` (Tinker's). Its
    key is TINKER_TEACHER_API_KEY, with TINKER_API_KEY as fallback. Default: the service of `base_url`."""
    engine: Literal["auto", "tinker", "skyrl"] = "auto"
    """What answers at a URL. `auto`: the server is asked; for SkyRL and TuFT, which speak an older version of
    Tinker's protocol, the run starts a bridge and talks to that. `skyrl`: `base_url` must be a SkyRL. `tinker`:
    the server speaks today's protocol and is not asked. No effect with `local` and Tinker's cloud."""
    student: str
    """Model to train, by its name on the service."""
    teacher: str | None = None
    """Model to distil from; one with another tokenizer than the student's scores spans of the text. Required if λ
    is above 0 in some step (`learning.kl_weight`, `learning.final_kl_weight`), for a warm start on its answers,
    and for `evaluation.teacher`. `tinker://RUN/sampler_weights/NAME` selects saved weights, such as a teacher
    that you trained."""
    teachers: dict[str, str] = Field(default_factory=dict)
    """Teachers for the problems of single sources: mapping of a problem's `source` (`starter`, `cvdp`,
    `cvdp-agentic`, ...) to a model or saved weights. All other problems use `teacher`."""
    lora_rank: Count = 32
    """Rank of the LoRA adapter. Tinker's cloud accepts only powers of two."""
    start_from: str | None = None
    """Saved state (`tinker://RUN/weights/NAME`) from which the student starts, instead of a new adapter.
    Its weights are loaded, its optimizer is not. `student` and `lora_rank` must match it. With `local` it
    must be of a run in the same `run.directory`."""
    local_models: dict[str, Path] = Field(default_factory=dict)
    """Mapping of model name to a folder on this machine. With `local` the model is loaded from it; the
    package's tiny models (`student`, `teacher`, ...) and those of `rtl-distill admin fetch-model` need no entry.
    Otherwise only the tokenizer is loaded from it (default: the hub)."""
    local_threads: Count = 2
    """With `local`: number of CPU threads of the service."""
    local_device: str = "auto"
    """With `local`: device of the models: `cpu`, `cuda`, `cuda:N`, or `auto` (a GPU if there is one and a
    model has 64 MiB or more)."""
    local_dtype: Literal["float32", "bfloat16"] = "float32"
    """With `local`: dtype of the frozen weights and of the computation. Adapters are always float32.
    bfloat16 halves the memory and is much faster if the processor supports it, but increases the difference
    of sampler and trainer (docs/localtinker.md)."""
    local_deterministic: bool = False
    """With `local`: make samples depend only on seed and prompt, not on the rest of the batch (slower)."""

    @field_validator("base_url", "teacher_base_url")
    @classmethod
    def _address(cls, value: str | None, info: ValidationInfo) -> str | None:
        names = ("local",) if info.field_name == "base_url" else ("local", "cloud")
        if value is None or value in names or value.startswith(("http://", "https://")):
            return value
        default = "Tinker's cloud" if info.field_name == "base_url" else "the student's service"
        raise ValueError(
            f"{value!r} is neither a URL nor {' or '.join(names)}; omit it for {default}"
        )

    @field_validator("local_device")
    @classmethod
    def _device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
            raise ValueError(f"{value!r} is not a device; use auto, cpu, cuda or cuda:N")
        return value

    @field_validator("start_from")
    @classmethod
    def _state(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"tinker://[^/\s]+/weights/[^/\s]+", value):
            raise ValueError(
                f"{value!r} is not a saved state; give tinker://RUN/weights/NAME (`rtl-distill "
                "checkpoints RUN` lists them);"
                " sampler_weights cannot be trained on"
            )
        return value

    @property
    def is_local(self) -> bool:
        return self.base_url == "local"

    @property
    def teacher_apart(self) -> bool:
        """Whether the teachers are on a different service from the student."""
        return self.teacher is not None and self.teacher_base_url not in (
            None,
            self.base_url or "cloud",
        )

    @property
    def all_local(self) -> bool:
        """Whether only the embedded service is used."""
        return self.is_local and not self.teacher_apart

    def is_embedded(self, model: str) -> bool:
        """Whether a model is served only by the embedded service."""
        if not self.teacher_apart or model not in self.named_teachers.values():
            return self.is_local
        return self.teacher_base_url == "local" and model != self.student

    def teacher_of(self, source: str | None) -> str | None:
        """Return the teacher for the problems of a source (`Problem.source`)."""
        return self.teacher if source is None else self.teachers.get(source, self.teacher)

    @property
    def named_teachers(self) -> dict[str, str]:
        """Mapping of configuration key to teacher, `tinker.teacher` first."""
        rest = {} if self.teacher is None else {"tinker.teacher": self.teacher}
        return rest | {
            f"tinker.teachers.{source}": name for source, name in self.teachers.items()
        }
