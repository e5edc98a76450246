"""Check of a remote Tinker service before a run, without retries: does it accept the credential, and what does it serve?

The SDK's own clients retry for five minutes, or for an hour if an account is unpaid (402), and only log it (SDK 0.38,
`lib/internal_client_holder.py`). This module therefore uses the SDK's HTTP client directly. Finding credentials and addresses, exchanging a
credential for a token, and error classes are the SDK's.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Mapping

import httpx
import tinker
from tinker._client import AsyncTinker
from tinker.lib._auth_token_provider import (
    ApiKeyAuthProvider,
    AuthTokenProvider,
    CredentialCmdAuthProvider,
    resolve_auth_provider,
)
from tinker.lib.base_url import resolve_base_url
from tinker.types import CheckpointsListResponse, ClientConfigRequest, SupportedModel, WeightsInfoResponse
from tinker.types.client_config_response import ClientConfigResponse

from rtl_core.backend.base import Readiness, Saved
from rtl_core.backend.tinker.checkpoints import missing_weights
from rtl_core.backend.tinker.connect import credential, sign_in
from rtl_core.backend.tinker.faults import KINDS, TEMPORARY, kind_of, status_of
from rtl_core.backend.tinker.services import TinkerService
from rtl_core.errors import PolicyError
from rtl_core.types.finding import Finding

REQUEST_S = 30.0
"""Timeout of one request. Up to three follow one another."""
PAGE = 100
"""Saved weights in one answer of a service."""
WHOLE_S = 60.0
"""Timeout of all requests together."""


async def remote_readiness(service: TinkerService) -> Readiness:
    """Check a remote service and the models that a run needs from it. See `Provider.check`."""
    url = resolve_base_url(service.url)
    try:
        auth, source = credential(service)
    except PolicyError as error:
        return Readiness([Finding("credentials", "wrong", error.message, error.hint)])
    try:
        async with asyncio.timeout(WHOLE_S):
            auth = await exchange_credential(url, auth, service.key)
            models = await supported_models(url, auth)
            saved = await saved_weights(url, auth, service)
    except Exception as error:
        if (found := refusal(error, url, source, service)) is None:
            raise
        return Readiness([found])
    findings = [
        Finding("credentials", "ok", f"{source}, taken by {url}"),
        Finding("account", "ok", f"in good standing; {len(models)} models served"),
    ]
    trains = service.config.run.purpose == "train"
    for key, name in service.models.items():
        findings.append(model_finding(key, name, models, trained=key == "tinker.student" and trains))
    wanted = {name: models[name].max_context_length for name in service.models.values() if name in models}
    context = {name: length for name, length in wanted.items() if length}
    return Readiness(findings, context, saved=saved)


async def supported_models(url: str, auth: AuthTokenProvider) -> dict[str, SupportedModel]:
    """Return the models that the service lists, by name. Needs a paid account. Raises SDK errors."""
    async with _client(url, auth) as client:
        listed = (await client.service.get_server_capabilities()).supported_models
    return {model.model_name: model for model in listed if model.model_name}


async def exchange_credential(url: str, auth: AuthTokenProvider, key: str | None = None) -> AuthTokenProvider:
    """Return the authentication for requests: the credential, or the token that the service exchanges for it. Raises SDK errors."""
    async with _client(url, auth) as first:
        flags = await first.service.client_config(request=ClientConfigRequest(sdk_version=tinker.__version__))
    if flags.pjwt_auth_enabled:
        by_command = flags.credential_default_source == "credential_cmd"
        async with _client(url, resolve_auth_provider(key, by_command)) as exchange:
            return ApiKeyAuthProvider((await exchange.service.auth_token()).jwt)
    if isinstance(auth, CredentialCmdAuthProvider):
        raise tinker.TinkerError("the service accepts only API keys, and only TINKER_CREDENTIAL_CMD is set")
    return auth


def _client(url: str, auth: AuthTokenProvider) -> AsyncTinker:
    return AsyncTinker(
        base_url=url,
        timeout=httpx.Timeout(REQUEST_S, connect=15.0),
        max_retries=0,
        _auth=auth,
        _strict_response_validation=True,
        # As in the SDK's first request: httpx' transport, whose errors can be told apart.
        _client_config=ClientConfigResponse(use_pyqwest_transport=False),
    )


async def saved_weights(url: str, auth: AuthTokenProvider, service: TinkerService) -> dict[str, Saved | PolicyError]:
    """Describe the saved weights that the run names, if any (see `Readiness.saved`)."""
    found: dict[str, Saved | PolicyError] = {}
    if not service.weights:
        return found
    async with _client(url, auth) as client:
        for key, path in service.weights.items():
            try:
                body = {"tinker_path": path}
                info = await client.post("/api/v1/weights_info", body=body, cast_to=WeightsInfoResponse)
                found[key] = Saved(info.base_model, info.lora_rank)
            except (tinker.NotFoundError, tinker.BadRequestError, tinker.UnprocessableEntityError):
                found[key] = missing_weights(path)
    return found


async def stored_weights(service: TinkerService) -> set[str]:
    """Return the paths of all weights that belong to the key's owner. Raises SDK errors."""
    url, found = resolve_base_url(service.url), set[str]()
    auth = await exchange_credential(url, credential(service)[0], service.key)
    async with _client(url, auth) as client:
        while True:
            page = await client.get(
                "/api/v1/checkpoints",
                cast_to=CheckpointsListResponse,
                options={"params": {"limit": PAGE, "offset": len(found)}},
            )
            paths = {one.tinker_path for one in page.checkpoints}
            if paths <= found:
                return found
            found |= paths


def refusal(error: Exception, url: str, source: str, service: TinkerService | None = None) -> Finding | None:
    """Return the finding for an error of the service or the SDK; None for other errors."""
    name = kind_of(error)
    if name is None and isinstance(error, TimeoutError):
        name = "unreachable"
    elif name is None and isinstance(error, (OSError, ValueError)):  # the credential expired, or its command failed
        name = "unusable"
    if name is None:
        return None
    late = isinstance(error, (TimeoutError, tinker.APITimeoutError))
    body = error.body if isinstance(error, tinker.APIStatusError) else None
    said = body.get("detail") or body.get("message") if isinstance(body, dict) else None
    words = {
        "url": url,
        "source": source,
        "status": status_of(error),
        "detail": f": {' '.join(str(said).split())[:200]}" if said else "",
        "cause": "no answer in time" if late else error.__cause__ or error,
        "first_line": str(error).partition("\n")[0],
        "sign_in": sign_in(service),
        "setting": service.setting if service else "tinker.base_url",
    }
    kind = KINDS[name]
    return Finding(kind.about, "wrong", kind.found.format(**words), kind.remedy.format(**words), name in TEMPORARY)


def model_finding(key: str, name: str, served: Mapping[str, SupportedModel], *, trained: bool) -> Finding:
    """Check that a service has a model, samples it and, if `trained`, trains it."""
    # None means unknown; then opening a client decides.
    fit = [n for n, m in served.items() if m.sampleable is not False and (not trained or m.trainable is not False)]
    near = ", ".join(difflib.get_close_matches(name, fit, n=3, cutoff=0.3) or sorted(fit)[:3]) or "none"
    remedy = f"set {key} to a model that it serves; most similar: {near}"
    model = served.get(name)
    if model is None:
        return Finding(key, "wrong", f"the service does not serve {name!r}; it may be retired", remedy)
    if model.sampleable is False:
        return Finding(key, "wrong", f"the service serves {name!r} but does not sample it", remedy)
    if trained and model.trainable is False:
        return Finding(key, "wrong", f"the service serves {name!r} but does not train it", remedy)
    length = f", up to {model.max_context_length:,} tokens" if model.max_context_length else ""
    return Finding(key, "ok", f"{name}: sampled{' and trained' if trained else ''}{length}")
