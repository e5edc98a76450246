"""To a Tinker service: which one, what it serves, and where its models have their tokenizers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import tinker

from rtl_core.backend.base import Readiness
from rtl_core.backend.tinker.asking import credential
from rtl_core.backend.tinker.faults import translated
from rtl_core.backend.tinker.places import Place, places_of
from rtl_core.backend.tinker.saved import adopt, adopted_bases, found_here
from rtl_core.config import RunConfig
from rtl_core.errors import ConfigError, PolicyError
from rtl_core.types.finding import Finding
from rtl_core.types.tokenizer import Tokenizer

CLOSING_S = 5.0
"""How long the end of a session waits for the service to note it; a session that was interrupted waits a fifth of it."""


@dataclass(frozen=True)
class Endpoint:
    """Where the Tinker service is. None means the SDK's own default: the cloud, with the credential that the SDK finds."""

    base_url: str | None = None
    api_key: str | None = None
    kill: Callable[[], None] = lambda: None
    """Ends the embedded service at once, from any thread; nothing with any other."""


@contextmanager
def tinker_endpoint(place: Place, on_restart: Callable[[str], None]) -> Iterator[Endpoint]:
    """A service of a run; the embedded one lives as long as this context.

    Args:
        on_restart: is told in words when the embedded service had ended and was started again.

    Raises:
        PolicyError: no key for a service that needs one.
    """
    config = place.config
    if place.is_local:
        from rtl_core.localtinker.kept import KeptTinker

        adopt(place)
        with KeptTinker(
            local_models(place),
            place.state,
            on_restart=on_restart,
            threads=config.tinker.local_threads,
            deterministic=config.tinker.local_deterministic,
            device=config.tinker.local_device,
            dtype=config.tinker.local_dtype,
        ) as service:
            yield Endpoint(service.base_url, service.api_key, service.kill)
        return
    credential(place)
    yield Endpoint(place.url, place.key)


@asynccontextmanager
async def tinker_session(endpoint: Endpoint) -> AsyncIterator[tinker.ServiceClient]:
    """A session of the SDK on a service. Afterwards it is finished there, and nothing of it runs on in this process.

    Without that the SDK's background loop sends heartbeats for as long as the process lives, and warns when the service has gone.
    A service that does not answer does not hold up the end: without heartbeats it ends the session itself.
    """
    with translated():
        service = tinker.ServiceClient(base_url=endpoint.base_url, api_key=endpoint.api_key)
    patience_s = CLOSING_S
    status: Literal["success", "errored", "interrupted"] = "success"
    try:
        yield service
    except Exception:
        status = "errored"
        raise
    except BaseException:
        status, patience_s = "interrupted", CLOSING_S / 5
        raise
    finally:
        closing = asyncio.wrap_future(service.close(status).future())
        # What is cancelled for want of an answer releases the client's connections and heartbeats all the same.
        with contextlib.suppress(TimeoutError, tinker.TinkerError):
            await asyncio.wait_for(closing, patience_s)


def state_folder(config: RunConfig) -> Path:
    """Where the embedded service of a run keeps the weights that it trains."""
    return places_of(config)[0].state


def local_models(place: Place) -> dict[str, Path]:
    """Name -> folder of the models that the embedded service of this run serves."""
    from rtl_core.pretrained import MODELS, model_folder
    from rtl_core.tinymodels import MODEL_NAMES, model_path

    names = {*place.models.values(), *adopted_bases(place)}
    folders = place.config.tinker.local_models
    # Of two services each has its own models alone.
    models = {name: folder for name, folder in folders.items() if place.part == "all" or name in names}
    for name in sorted(names - set(models)):
        if name in MODELS:
            models[name] = model_folder(name)
        elif name in MODEL_NAMES:
            models[name] = model_path(name)
        else:
            known = ", ".join([*MODEL_NAMES, *MODELS])
            raise PolicyError(
                f"the embedded service knows no model {name!r}",
                f'add `[tinker.local_models]` with `"{name}" = "/path/to/folder"`, or use one of: {known}',
            )
    return models


def embedded_readiness(place: Place) -> Readiness:
    """What the embedded service will say of the models that a run wants, from their folders. See `Provider.check`."""
    from transformers import AutoConfig

    from rtl_core.localtinker.devices import device_for
    from rtl_core.localtinker.settings import context_of

    try:
        folders = local_models(place)
    except PolicyError as error:
        return Readiness([Finding("models", "wrong", error.message, error.hint)])
    findings, context, checkpoint_bytes = [], {}, 0
    for key, name in place.models.items():
        try:
            found = AutoConfig.from_pretrained(folders[name], local_files_only=True)
        except (OSError, ValueError) as error:
            words = f"{folders[name]} is no model: {str(error).splitlines()[0]}"
            findings.append(Finding(key, "wrong", words, f"correct tinker.local_models[{name!r}]"))
            continue
        context[name] = context_of(found)
        findings.append(Finding(key, "ok", f"{name}: embedded, up to {context[name]:,} tokens"))
        if key == "tinker.student":
            checkpoint_bytes = _checkpoint_bytes(found.get_text_config(), place.config.tinker.lora_rank)
    section = place.config.tinker
    try:
        device = device_for(section.local_device, folders.values())
        findings.append(Finding("tinker.local_device", "ok", f"{device}, {section.local_dtype}"))
    except ConfigError as error:
        findings.append(Finding("tinker.local_device", "wrong", error.message, error.hint))
    return Readiness(findings, context, checkpoint_bytes, found_here(place))


def _checkpoint_bytes(model: Any, rank: int) -> int:
    """At most what a saved adapter takes: A and B of every layer in float32, with Adam's two moments, and the sampler's copy."""
    hidden, inner = model.hidden_size, getattr(model, "intermediate_size", 4 * model.hidden_size)
    attention, mlp = 4 * 2 * hidden, 3 * (hidden + inner)
    numbers = rank * (model.num_hidden_layers * (attention + mlp) + hidden + model.vocab_size)
    return int(4 * numbers * (1 + 2 + 1))


def load_tokenizer(name: str, config: RunConfig) -> Tokenizer:
    """The tokenizer of a model: from its folder if it has one on this machine, otherwise as the hub names it."""
    from transformers import AutoTokenizer

    # A hub that is out of reach is told once, below, and not with each retry.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    folders = dict(config.tinker.local_models)
    for place in places_of(config):
        folders |= local_models(place) if place.is_local else {}
    source = str(folders.get(name, name))
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        # What is too long for a model is told by whoever asks it; transformers' own warning speaks of errors that there are none of.
        tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
        return cast(Tokenizer, tokenizer)
    except OSError as error:
        raise PolicyError(
            f"the tokenizer of {name!r} cannot be loaded: {str(error).splitlines()[0]}",
            f'check the network and the name; or name its folder: [tinker.local_models] with "{name}" = "/path/to/folder"',
        ) from error
