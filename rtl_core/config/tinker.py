"""The section of a configuration about models: which are trained and scored, and by which services."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from rtl_core.types.section import Section


class TinkerSection(Section):
    base_url: str | None = None
    """`local`: the embedded service, started and stopped by the run. A URL: that service. Left out: Tinker's cloud."""
    teacher_base_url: str | None = None
    """Another service for the teachers, which then need not be where the student is trained: a URL, `local` (the embedded service), or `cloud`
    (Tinker's). Its key is TINKER_TEACHER_API_KEY, or without that TINKER_API_KEY. Left out: the service of `base_url`."""
    student: str
    """The model to train, as the service names it."""
    teacher: str | None = None
    """The model to distil from; must share the student's tokenizer. Needed when λ is above 0 in some step (`learning.kl_weight`,
    `learning.final_kl_weight`), for a warm start on its answers, and for `evaluation.teacher`. `tinker://RUN/sampler_weights/NAME`
    takes saved weights: a teacher of your own training."""
    teachers: dict[str, str] = Field(default_factory=dict)
    """Other teachers for the problems of some sources: a problem's `source` (`starter`, `cvdp`, `cvdp-agentic`, ...) -> a teacher, named
    as `teacher` is, which stays the one for all other problems."""
    lora_rank: int = Field(default=32, ge=1)
    """Rank of the LoRA adapter. Tinker's cloud trains powers of two."""
    start_from: str | None = None
    """`tinker://RUN/weights/NAME`: the saved state that the student starts from in place of a fresh adapter. Its weights are taken and its
    optimizer is not. `student` and `lora_rank` must be its own. With `local` a run of the same `run.directory` has saved it."""
    local_models: dict[str, Path] = Field(default_factory=dict)
    """Model name -> folder on this machine. With `local` the model is read there; without an entry `student`, `teacher` and so on are the tiny
    models of the package, and those of `rtl-distill fetch-model` are found where it puts them; with any other service its tokenizer alone, which otherwise comes from the hub."""
    local_threads: int = Field(default=2, ge=1)
    """With `local`: CPU threads of the service."""
    local_device: str = "auto"
    """With `local`: where the models run: `cpu`, `cuda`, `cuda:N`, or `auto`, a GPU if there is one and a model has 64 MiB or more."""
    local_dtype: Literal["float32", "bfloat16"] = "float32"
    """With `local`: numbers of the frozen weights and of what is computed from them; an adapter's are float32 in any case. bfloat16 takes
    half the memory and, where the processor multiplies it, a fraction of the time, and sets sampler and trainer apart (docs/localtinker.md)."""
    local_deterministic: bool = False
    """With `local`: the same seed and prompt give the same sample, whatever else is in the batch (slower)."""

    @field_validator("base_url")
    @classmethod
    def _url(cls, value: str | None) -> str | None:
        if value is not None and value != "local" and not value.startswith(("http://", "https://")):
            raise ValueError(f"{value!r} is neither `local` nor a URL; leave it out for Tinker's cloud")
        return value

    @field_validator("teacher_base_url")
    @classmethod
    def _teacher_url(cls, value: str | None) -> str | None:
        if value not in (None, "local", "cloud") and not str(value).startswith(("http://", "https://")):
            raise ValueError(f"{value!r} is none of `local`, `cloud` and a URL; leave it out for the student's service")
        return value

    @field_validator("local_device")
    @classmethod
    def _device(cls, value: str) -> str:
        if not re.fullmatch(r"auto|cpu|cuda(:\d+)?", value):
            raise ValueError(f"{value!r} is no device: take auto, cpu, cuda or cuda:N")
        return value

    @field_validator("start_from")
    @classmethod
    def _state(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"tinker://[^/\s]+/weights/[^/\s]+", value):
            raise ValueError(
                f"{value!r} is no saved state: give tinker://RUN/weights/NAME (`rtl-distill checkpoints RUN` lists them);"
                " sampler_weights cannot be trained on"
            )
        return value

    @property
    def is_local(self) -> bool:
        return self.base_url == "local"

    @property
    def teacher_apart(self) -> bool:
        """Whether the teachers are on another service than the student."""
        return self.teacher is not None and self.teacher_base_url not in (None, self.base_url or "cloud")

    @property
    def all_local(self) -> bool:
        """Whether no other service than the embedded one is used."""
        return self.is_local and not self.teacher_apart

    def is_embedded(self, model: str) -> bool:
        """Whether a model of the configuration is served by the embedded service alone."""
        if not self.teacher_apart or model not in self.named_teachers.values():
            return self.is_local
        return self.teacher_base_url == "local" and model != self.student

    def teacher_of(self, source: str | None) -> str | None:
        """The teacher of the problems of a source (`Problem.source`)."""
        return self.teacher if source is None else self.teachers.get(source, self.teacher)

    @property
    def named_teachers(self) -> dict[str, str]:
        """Key of the configuration -> the teacher that it names, `tinker.teacher` first."""
        rest = {} if self.teacher is None else {"tinker.teacher": self.teacher}
        return rest | {f"tinker.teachers.{source}": name for source, name in self.teachers.items()}
