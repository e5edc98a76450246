"""To a Tinker service: which one, what it serves, and where its models have their tokenizers."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import tinker

from rtl_core.backend.base import SAVED
from rtl_core.backend.tinker.saved import adopt, adopted_bases
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError
from rtl_core.types.tokenizer import Tokenizer

CLOSING_S = 5.0
"""How long the end of a session waits for the service to note it; a session that was interrupted waits a fifth of it."""


@dataclass(frozen=True)
class Endpoint:
    """Where the Tinker service is. None means the SDK's own default: the cloud, with the key from the environment."""

    base_url: str | None = None
    api_key: str | None = None
    kill: Callable[[], None] = lambda: None
    """Ends the embedded service at once, from any thread; nothing with any other."""


@contextmanager
def tinker_endpoint(config: RunConfig, on_restart: Callable[[str], None]) -> Iterator[Endpoint]:
    """The service of a run; the embedded one lives as long as this context.

    Args:
        on_restart: is told in words when the embedded service had ended and was started again.

    Raises:
        PolicyError: no key for a service that needs one.
    """
    if config.tinker.is_local:
        from rtl_core.localtinker.kept import KeptTinker

        adopt(config, state_folder(config))
        with KeptTinker(
            local_models(config),
            state_folder(config),
            on_restart=on_restart,
            threads=config.tinker.local_threads,
            deterministic=config.tinker.local_deterministic,
        ) as service:
            yield Endpoint(service.base_url, service.api_key, service.kill)
        return
    if not os.environ.get("TINKER_API_KEY"):
        raise PolicyError(
            "TINKER_API_KEY is not set",
            "export TINKER_API_KEY=tml-..., or train on this machine with --set tinker.base_url=local",
        )
    yield Endpoint(config.tinker.base_url)


@asynccontextmanager
async def tinker_session(endpoint: Endpoint) -> AsyncIterator[tinker.ServiceClient]:
    """A session of the SDK on a service. Afterwards it is finished there, and nothing of it runs on in this process.

    Without that the SDK's background loop sends heartbeats for as long as the process lives, and warns when the service has gone.
    A service that does not answer does not hold up the end: without heartbeats it ends the session itself.
    """
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
    """Where the embedded service of a run keeps its weights."""
    return config.run.folder / "tinker"


def local_models(config: RunConfig) -> dict[str, Path]:
    """Name -> folder of the models that the embedded service of this run serves."""
    from rtl_core.tinymodels import model_path

    teachers = {name for name in config.tinker.named_teachers.values() if not name.startswith(SAVED)}
    names = {config.tinker.student, *teachers, *adopted_bases(config, state_folder(config))}
    models = dict(config.tinker.local_models)
    for name in sorted(names - set(models)):
        if name not in ("student", "teacher"):
            raise PolicyError(
                f"the embedded service knows no model {name!r}",
                f'add `[tinker.local_models]` with `"{name}" = "/path/to/folder"`, or use the names student and teacher',
            )
        models[name] = model_path(name)  # type: ignore[arg-type]
    return models


async def check_served(endpoint: Endpoint, config: RunConfig) -> int | None:
    """Refuse a model that the service does not have, naming the nearest that it has. Returns the student's context, if it is told.

    Raises:
        PolicyError: the student cannot be trained or sampled there, or a teacher not sampled. Teachers that are saved weights are asked for
            elsewhere (`Backend.base_model`).
    """
    client = tinker.RestClient(base_url=endpoint.base_url, api_key=endpoint.api_key)
    capabilities = await client.get_server_capabilities()
    served = {model.model_name: model for model in capabilities.supported_models if model.model_name}
    for key, name in {"tinker.student": config.tinker.student, **config.tinker.named_teachers}.items():
        if name.startswith(SAVED):
            continue
        if name not in served:
            near = difflib.get_close_matches(name, served, n=3, cutoff=0.3)
            raise PolicyError(
                f"{key}: the service does not serve {name!r}",
                f"nearest served: {', '.join(near or sorted(served)[:3])}",
            )
        # A service that does not tell (None) is taken at its word when the client is created.
        trains = key == "tinker.student" and config.run.purpose == "train"
        if trains and served[name].trainable is False:
            raise PolicyError(f"{key}: the service serves {name!r} but does not train it", "choose a trainable student")
    context: int | None = served[config.tinker.student].max_context_length
    return context


def load_tokenizer(name: str, config: RunConfig) -> Tokenizer:
    """The tokenizer of a model: from its folder with the embedded service, otherwise as the hub names it."""
    from transformers import AutoTokenizer

    source = str(local_models(config)[name]) if config.tinker.is_local else name
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        # What is too long for a model is told by whoever asks it; transformers' own warning speaks of errors that there are none of.
        tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
        return cast(Tokenizer, tokenizer)
    except OSError as error:
        raise PolicyError(
            f"the tokenizer of {name!r} cannot be loaded: {str(error).splitlines()[0]}",
            "check the network and the name, or download it once and set HF_HUB_OFFLINE=1",
        ) from error
