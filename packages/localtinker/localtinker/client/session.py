"""Credentials and sessions of the SDK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import tinker
from tinker.lib._auth_token_provider import (
    MISSING_API_KEY_MESSAGE,
    ApiKeyAuthProvider,
    AuthTokenProvider,
    CredentialCmdAuthProvider,
    resolve_auth_provider,
)

from localtinker.errors import CredentialError

CLOSING_S = 5.0
"""Timeout for closing a session on the server. An interrupted session waits a fifth of it."""


def find_credential(api_key: str | None = None) -> tuple[AuthTokenProvider, str]:
    """Return the credential that the SDK uses, and its source in words. Raises CredentialError."""
    try:
        provider = resolve_auth_provider(api_key=api_key, enforce_cmd=False)
        if api_key:
            return provider, "the key"
        if isinstance(provider, CredentialCmdAuthProvider):
            return provider, "what TINKER_CREDENTIAL_CMD prints"
        by_variable = ApiKeyAuthProvider.create_or_env()
    except (OSError, ValueError, tinker.TinkerError) as error:
        why = ""
        if str(error) != MISSING_API_KEY_MESSAGE:
            # A stored file may be unreadable or have other content.
            why = f" that can be used: {str(error).splitlines()[0]}"
        raise CredentialError(
            f"there is no key for the Tinker service{why}",
            "export TINKER_API_KEY=tml-..., or store a key with `tinker auth login`",
        ) from error
    return provider, "TINKER_API_KEY" if by_variable else "the key of `tinker auth login`"


@asynccontextmanager
async def closed_at_the_end(
    service: tinker.ServiceClient,
) -> AsyncIterator[tinker.ServiceClient]:
    """Yield a service client, and close its session afterwards.

    Otherwise the SDK's background loop would send heartbeats for the life of the process, and warn once the
    server is gone. Closing has a timeout; without heartbeats the server ends the session itself.
    """
    patience_s = CLOSING_S
    status: Literal["success", "errored", "interrupted"] = "success"
    try:
        yield service
    except Exception:
        status = "errored"
        raise
    except BaseException:
        status = "interrupted"
        patience_s = CLOSING_S / 5
        raise
    finally:
        closing = asyncio.wrap_future(service.close(status).future())
        # On timeout the cancelled call still releases the client's connections and stops its heartbeats.
        with contextlib.suppress(TimeoutError, tinker.TinkerError):
            await asyncio.wait_for(closing, patience_s)
