"""What the bridge translates: one row a call, found by running and reading SkyRL 0.4.0 and reading TuFT 0.2.2.

Calls without a row pass through unchanged. A further version of an engine needs its routes in `faces.json`, and
rows for what it answers differently.
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from localtinker.bridge import promises, sampling, saving, training
from localtinker.bridge.calls import Call, Handler
from localtinker.bridge.upstream import Json


@dataclass(frozen=True)
class Row:
    """A translated call."""

    call: str
    """Method and path below /api/v1."""
    since: str
    """First version of the SDK that needs the translation. Engines of this kind are written for 0.25."""
    why: str
    """What the engine does instead."""
    handler: Handler


async def client_config(call: Call) -> Json:
    return {"parallel_fwdbwd_chunks": False, "sample_enable_stuck_detection": False}


async def dynamic_config(call: Call) -> Json:
    return {"sample_cancel_enabled": False}


async def capabilities(call: Call) -> Json:
    limits = call.bridge.limits
    models = []
    for name in call.bridge.models:
        context = limits[name].context if name in limits else None
        models.append(
            {
                "model_name": name,
                "max_context_length": context,
                "trainable": True,
                "sampleable": True,
            }
        )
    return {"supported_models": models}


async def engine(call: Call) -> Json:
    return call.bridge.engine.as_json()


async def nothing_to_do(call: Call) -> Json:
    return {"type": "ok"}


_RUN = "/training_runs/{run}/checkpoints"
ROWS = (
    Row(
        "POST /asample",
        "0.26",
        "no sample_sequence_ids; samples other weights than asked for; ignores options; a prompt of no tokens, a "
        "count of 0 or tokens beyond the vocabulary fail later, or never",
        sampling.asample,
    ),
    Row(
        "POST /retrieve_future",
        "0.33",
        "scores of all tokens, without the first on JAX; failed work as 400, NaN as 500, which the SDK asks for again; "
        "an id that is no number as 500; sampler paths without their kind",
        promises.retrieve_future,
    ),
    Row(
        "POST /forward_backward",
        "0.38",
        "does not know the client id that the SDK derives; computes with missing advantages, weights that are too "
        "short, tokens beyond the vocabulary and several targets a position",
        training.forward_backward,
    ),
    Row(
        "POST /optim_step",
        "0.38",
        "does not know the client id that the SDK derives; JAX ignores grad_clip_norm",
        training.optim_step,
    ),
    Row(
        "POST /create_sampling_session",
        "0.25",
        "opens sessions on weights and models that do not exist",
        sampling.create_sampling_session,
    ),
    Row(
        "POST /create_model",
        "0.25",
        "trains the served model whatever is asked for; JAX leaves the last client's gradient in the place; fails at "
        "once if all places are taken; a request sent twice opens two clients",
        training.create_model,
    ),
    Row(
        "POST /load_weights",
        "0.38",
        "wants the id of a new client, where the SDK sends session and number",
        training.load_weights,
    ),
    Row(
        "POST /get_info",
        "0.38",
        "does not know the client id that the SDK derives",
        training.get_info,
    ),
    Row(
        "POST /unload_model",
        "0.38",
        "does not know the client id that the SDK derives",
        training.unload_model,
    ),
    Row(
        "POST /save_weights",
        "0.28",
        "ignores overwrite: 409, which the SDK repeats",
        saving.save_weights,
    ),
    Row(
        "POST /save_weights_for_sampler",
        "0.25",
        "409 for a name that exists; a path without its kind",
        saving.save_weights_for_sampler,
    ),
    Row("POST /save_weights_external", "0.28", "404", saving.save_weights_external),
    Row(
        f"GET {_RUN}/external_weights/{{name}}/external_weights_urls",
        "0.28",
        "404",
        saving.external_urls,
    ),
    Row(
        f"GET {saving.DOWNLOADS}/{{run}}/{{name}}/{{file:path}}",
        "0.28",
        "404",
        saving.external_file,
    ),
    Row("POST /weights_info", "0.25", "400 for sampler weights", saving.weights_info),
    Row("GET /checkpoints", "0.25", "404", saving.checkpoints),
    Row(f"GET {_RUN}", "0.25", "ids without their kind", saving.run_checkpoints),
    Row(f"PUT {_RUN}/{{path:path}}/ttl", "0.25", "405", saving.set_ttl),
    Row(
        f"DELETE {_RUN}/{{path:path}}",
        "0.28",
        "does not know external_weights",
        saving.delete_checkpoint,
    ),
    Row(
        "POST /sessions/{session}/finish",
        "0.30",
        "404: clients keep their places",
        training.finish,
    ),
    Row(
        "POST /session_heartbeat",
        "0.30",
        "answers for finished sessions",
        training.session_heartbeat,
    ),
    Row("POST /cancel_future", "0.30", "404", nothing_to_do),
    Row(
        "POST /client/config",
        "0.25",
        "batches in parts, whose means would be added",
        client_config,
    ),
    Row("POST /client/dynamic_config", "0.35", "404", dynamic_config),
    Row("GET /get_server_capabilities", "0.25", "no context length", capabilities),
    Row("GET /local/engine", "", "the bridge's own", engine),
)


async def unchanged(call: Call) -> Response:
    """Pass a call through."""
    url = call.request.url
    route = url.path.removeprefix("/api/v1") + (f"?{url.query}" if url.query else "")
    kind = call.request.headers.get("content-type", "application/json")
    answer = await call.bridge.upstream.send(call.request.method, route, call.body, kind)
    return Response(answer.body, answer.for_sdk, answer.headers)
