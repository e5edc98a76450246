"""Requests to a server without retries.

The SDK's own clients retry for five minutes, or for an hour if an account is unpaid (402), and only log it (SDK 0.38,
`lib/internal_client_holder.py`). This module therefore uses the SDK's HTTP client directly. Finding
addresses, exchanging a credential for a token, and error classes are the SDK's.
"""

from __future__ import annotations

import httpx
import tinker
from tinker._client import AsyncTinker
from tinker.lib._auth_token_provider import (
    ApiKeyAuthProvider,
    AuthTokenProvider,
    CredentialCmdAuthProvider,
    resolve_auth_provider,
)
from tinker.types import ClientConfigRequest, SupportedModel
from tinker.types.client_config_response import ClientConfigResponse

REQUEST_S = 30.0
"""Timeout of one request. Up to three follow one another."""


async def supported_models(url: str, auth: AuthTokenProvider) -> dict[str, SupportedModel]:
    """Return the models that the server lists, by name. Needs a paid account. Raises SDK errors."""
    async with client(url, auth) as http:
        models = (await http.service.get_server_capabilities()).supported_models
    return {model.model_name: model for model in models if model.model_name}


async def exchange_credential(
    url: str, auth: AuthTokenProvider, key: str | None = None
) -> AuthTokenProvider:
    """Return the authentication for requests: the credential, or the token that the server exchanges for
    it. Raises SDK errors."""
    async with client(url, auth) as first:
        flags = await first.service.client_config(
            request=ClientConfigRequest(sdk_version=tinker.__version__)
        )
    if flags.pjwt_auth_enabled:
        by_command = flags.credential_default_source == "credential_cmd"
        async with client(url, resolve_auth_provider(key, by_command)) as exchange:
            return ApiKeyAuthProvider((await exchange.service.auth_token()).jwt)
    if isinstance(auth, CredentialCmdAuthProvider):
        raise tinker.TinkerError(
            "the service accepts only API keys, and only TINKER_CREDENTIAL_CMD is set"
        )
    return auth


def client(url: str, auth: AuthTokenProvider) -> AsyncTinker:
    """Return the SDK's HTTP client for `url`, without retries."""
    return AsyncTinker(
        base_url=url,
        timeout=httpx.Timeout(REQUEST_S, connect=15.0),
        max_retries=0,
        _auth=auth,
        _strict_response_validation=True,
        # As in the SDK's first request: httpx' transport, whose errors can be told apart.
        _client_config=ClientConfigResponse(use_pyqwest_transport=False),
    )
