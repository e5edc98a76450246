"""The way to a Tinker service: its address and credential, a session of the SDK, and the tokenizers of its models."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Literal, cast

import tinker
from tinker.lib._auth_token_provider import (
    MISSING_API_KEY_MESSAGE,
    ApiKeyAuthProvider,
    AuthTokenProvider,
    CredentialCmdAuthProvider,
    resolve_auth_provider,
)

from rtl_core.backend.tinker.embedded import adopt, local_models
from rtl_core.backend.tinker.faults import translated
from rtl_core.backend.tinker.services import TEACHER_KEY, TinkerService, services_of
from rtl_core.config import RunConfig
from rtl_core.errors import PolicyError
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


def credential(service: TinkerService | None = None) -> tuple[AuthTokenProvider, str]:
    """The credential for a service, its own or the one that the SDK finds, and where it comes from, in words.

    Raises:
        PolicyError: there is none, or it is no key.
    """
    try:
        found = resolve_auth_provider(api_key=service.key if service else None, enforce_cmd=False)
        if service and service.key:
            return found, TEACHER_KEY
        if isinstance(found, CredentialCmdAuthProvider):
            return found, "what TINKER_CREDENTIAL_CMD prints"
        return found, "TINKER_API_KEY" if ApiKeyAuthProvider.create_or_env() else "the key of `tinker auth login`"
    except (OSError, ValueError, tinker.TinkerError) as error:
        # A stored file may be unreadable, or hold something else.
        why = "" if str(error) == MISSING_API_KEY_MESSAGE else f" that can be used: {str(error).splitlines()[0]}"
        raise PolicyError(f"there is no key for the Tinker service{why}", sign_in(service)) from error


def sign_in(service: TinkerService | None) -> str:
    name = TEACHER_KEY if service and service.part == "teacher" else "TINKER_API_KEY"
    keyless = f"; `--set {service.setting}=local` needs none" if service else ""  # without a service: `check-service`
    return f"export {name}=tml-..., or store a key with `tinker auth login`{keyless}"


def setting_of(service: TinkerService | None) -> str:
    return service.setting if service else "tinker.base_url"


@contextmanager
def tinker_endpoint(service: TinkerService, on_restart: Callable[[str], None]) -> Iterator[Endpoint]:
    """A service of a run; the embedded one lives as long as this context.

    Args:
        on_restart: is told in words when the embedded service had ended and was started again.

    Raises:
        PolicyError: no key for a service that needs one.
    """
    config = service.config
    if service.is_local:
        from rtl_core.localtinker.process import KeptTinker

        adopt(service)
        with KeptTinker(
            local_models(service),
            service.state,
            on_restart=on_restart,
            threads=config.tinker.local_threads,
            deterministic=config.tinker.local_deterministic,
            device=config.tinker.local_device,
            dtype=config.tinker.local_dtype,
        ) as kept:
            yield Endpoint(kept.base_url, kept.api_key, kept.kill)
        return
    credential(service)
    yield Endpoint(service.url, service.key)


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


def load_tokenizer(name: str, config: RunConfig) -> Tokenizer:
    """The tokenizer of a model: from its folder if it has one on this machine, otherwise as the hub names it."""
    from transformers import AutoTokenizer

    # A hub that is out of reach is told once, below, and not with each retry.
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    folders = dict(config.tinker.local_models)
    for service in services_of(config):
        folders |= local_models(service) if service.is_local else {}
    source = str(folders.get(name, name))
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        # Silences a misleading warning of transformers; who asks a model for more than it takes is told by it.
        tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
        return cast(Tokenizer, tokenizer)
    except OSError as error:
        raise PolicyError(
            f"the tokenizer of {name!r} cannot be loaded: {str(error).splitlines()[0]}",
            f'check the network and the name; or name its folder: [tinker.local_models] with "{name}" = "/path/to/folder"',
        ) from error
