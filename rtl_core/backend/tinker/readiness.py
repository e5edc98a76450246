"""Check of a remote Tinker service before a run, without retries: does it accept the credential, and what
does it serve?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import tinker
from tinker.lib._auth_token_provider import AuthTokenProvider
from tinker.lib.base_url import resolve_base_url
from tinker.types import (
    Checkpoint,
    CheckpointsListResponse,
    SupportedModel,
    WeightsInfoResponse,
)

from localtinker.bridge.capabilities import FROZEN_SAMPLERS
from localtinker.client.failures import first_refusal
from localtinker.client.requests import client as client_of
from localtinker.client.requests import exchange_credential, supported_models
from rtl_core.backend.base import Readiness, Saved
from rtl_core.backend.tinker.checkpoints import missing_weights
from rtl_core.backend.tinker.connect import credential, sign_in
from rtl_core.backend.tinker.faults import KINDS, TEMPORARY
from rtl_core.backend.tinker.lacking import engine_findings
from rtl_core.backend.tinker.services import TinkerService
from rtl_core.errors import PolicyError
from rtl_core.types.finding import Finding
from rtl_grader.words import did_you_mean

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
        return Readiness([Finding.of("credentials", error)])
    try:
        async with asyncio.timeout(WHOLE_S):
            auth = await exchange_credential(url, auth, service.key)
            models = await supported_models(url, auth)
            saved = await saved_weights(url, auth, service)
    except Exception as error:
        finding = refusal(error, url, source, service)
        if finding is None:
            raise
        return Readiness([finding])
    findings = [
        Finding("credentials", "ok", f"{source}, taken by {url}"),
        Finding("account", "ok", f"in good standing; {len(models)} models served"),
    ]
    if service.through is not None:
        findings = engine_findings(service)
    trains = service.config.run.purpose == "train"
    for key, name in service.models.items():
        trained = trains and key == "tinker.student"
        findings.append(model_finding(key, name, models, trained=trained))
    context = {}
    for name in service.models.values():
        if name in models and (length := models[name].max_context_length):
            context[name] = length
    newest_only = FROZEN_SAMPLERS in service.lacks
    return Readiness(findings, context, saved=saved, newest_weights_only=newest_only)


async def saved_weights(
    url: str, auth: AuthTokenProvider, service: TinkerService
) -> dict[str, Saved | PolicyError]:
    """Describe the saved weights that the run names, if any (see `Readiness.saved`)."""
    weights: dict[str, Saved | PolicyError] = {}
    if not service.weights:
        return weights
    async with client_of(url, auth) as client:
        for key, path in service.weights.items():
            try:
                body = {"tinker_path": path}
                info = await client.post(
                    "/api/v1/weights_info", body=body, cast_to=WeightsInfoResponse
                )
                weights[key] = Saved(info.base_model, info.lora_rank)
            except (
                tinker.NotFoundError,
                tinker.BadRequestError,
                tinker.UnprocessableEntityError,
            ):
                weights[key] = missing_weights(path)
    return weights


async def stored_weights(service: TinkerService) -> dict[str, Checkpoint]:
    """Return all weights that belong to the key's owner, by path. Raises SDK errors."""
    url, found = resolve_base_url(service.url), dict[str, Checkpoint]()
    auth = await exchange_credential(url, credential(service)[0], service.key)
    async with client_of(url, auth) as client:
        while True:
            page = await client.get(
                "/api/v1/checkpoints",
                cast_to=CheckpointsListResponse,
                options={"params": {"limit": PAGE, "offset": len(found)}},
            )
            more = {one.tinker_path: one for one in page.checkpoints}
            if more.keys() <= found.keys():
                return found
            found |= more


def refusal(error: Exception, url: str, source: str, service: TinkerService) -> Finding | None:
    """Return the finding for an error of the service or the SDK; None for other errors."""
    reason = first_refusal(error, url, source)
    if reason is None:
        return None
    name, text = reason
    kind = KINDS[name]
    remedy = kind.remedy.format(sign_in=sign_in(service), setting=service.setting)
    return Finding(kind.about, "wrong", text, remedy, name in TEMPORARY)


def model_finding(
    key: str, name: str, served: Mapping[str, SupportedModel], *, trained: bool
) -> Finding:
    """Check that a service has a model, samples it and, if `trained`, trains it."""
    # None means unknown; then opening a client decides.
    fit = [
        n
        for n, m in served.items()
        if m.sampleable is not False and (not trained or m.trainable is not False)
    ]
    listed = ", ".join(sorted(fit)[:3]) or "none"
    remedy = did_you_mean(name, fit, f"set {key} to a model that it serves, such as {listed}")
    model = served.get(name)
    if model is None:
        text = f"the service does not serve {name!r}; it may be retired"
    elif model.sampleable is False:
        text = f"the service serves {name!r} but does not sample it"
    elif trained and model.trainable is False:
        text = f"the service serves {name!r} but does not train it"
    else:
        most = model.max_context_length
        length = f", up to {most:,} tokens" if most else ""
        use = "sampled and trained" if trained else "sampled"
        return Finding(key, "ok", f"{name}: {use}{length}")
    return Finding(key, "wrong", text, remedy)
