"""Invalid requests. They are sent once, without the SDK, which would retry a 5xx for five minutes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tinker
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto

from localtinker.certify.bench import SAMPLING, TRAINING, Bench
from localtinker.certify.cases import NotTriedError, case, option
from localtinker.certify.data import PROMPT, datum
from localtinker.client.failures import PERMANENT

HANGS = "a mistake in a configuration looks like a busy server: the run waits instead of reporting it"


async def sampling_session(bench: Bench) -> str:
    """Open a sampling session on the base model, for requests without the SDK. Returns its id."""
    body = {
        "session_id": await bench.session_id(),
        "sampling_session_seq_id": 1000,
        "base_model": bench.server.name,
        "type": "create_sampling_session",
    }
    async with bench.http() as http:
        answer = await http.post("create_sampling_session", json=body)
    assert answer.status_code < 300, (
        f"create_sampling_session: {answer.status_code} ({answer.text[:200]})"
    )
    return str(answer.json()["sampling_session_id"])


def sample_body(
    sampling_session_id: str, number: int, tokens: Sequence[int], **shape: Any
) -> dict[str, Any]:
    return {
        "sampling_session_id": sampling_session_id,
        "seq_id": number,
        "num_samples": 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]},
        "sampling_params": {"max_tokens": 4, "temperature": 1.0, **shape},
        "type": "sample",
    }


@case("refuses bad sampling requests", needs=SAMPLING, without=HANGS)
async def test_bad_sampling(bench: Bench) -> str:
    """An invalid sampling request is answered with a 4xx, or ends in an error of category `user`."""
    session = await sampling_session(bench)
    bodies = {
        "a prompt with a token beyond the vocabulary": sample_body(
            session, 1, [*PROMPT, 10**8]
        ),
        "an empty prompt": sample_body(session, 2, []),
        "a temperature below 0": sample_body(session, 3, PROMPT, temperature=-1.0),
        "max_tokens = 0": sample_body(session, 4, PROMPT, max_tokens=0),
        "a body without a prompt": {
            "sampling_session_id": session,
            "seq_id": 5,
            "type": "sample",
        },
    }
    return await bench.demand_refused("asample", bodies)


@case("refuses a prompt that is too long", needs=SAMPLING, without=HANGS)
async def test_too_long(bench: Bench) -> str:
    """A prompt that exceeds the model's context is answered with a 4xx."""
    length = (bench.server.context or 300_000) + 1
    session = await sampling_session(bench)
    body = sample_body(session, 1, [PROMPT[0]] * length)
    await bench.demand_refused("asample", {f"a prompt of {length:,} tokens": body})
    return f"{length:,} tokens refused"


@case("refuses bad training batches", needs=TRAINING, without=HANGS)
async def test_bad_training(bench: Bench) -> str:
    """An invalid batch is answered with a 4xx, or ends in an error of category `user`."""
    weights = [1.0] * (len(PROMPT) - 1)
    good = datum(PROMPT, weights=weights)
    short = datum(PROMPT, weights=weights[2:])
    foreign = datum([*PROMPT[:-1], 10**8], weights=weights)
    batches = {
        "a loss that does not exist": ([good], "no_such_loss"),
        "a policy loss without advantages": ([good], "importance_sampling"),
        "weights for fewer tokens than there are": ([short], "cross_entropy"),
        "a token beyond the vocabulary": ([foreign], "cross_entropy"),
    }
    bodies = {}
    for what, (data, loss) in batches.items():
        # A new one, so that each request has the sequence number that the server expects.
        trainer = await bench.trainer()
        inputs = types.ForwardBackwardInput(data=data, loss_fn=loss)  # type: ignore[arg-type]
        request = types.ForwardBackwardRequest(
            forward_backward_input=inputs, model_id=trainer.model_id, seq_id=1
        )
        bodies[what] = forward_backward_request_to_proto(request).SerializeToString()
    return await bench.demand_refused("forward_backward", bodies)


@case("refuses nonsense", without=HANGS)
async def test_nonsense(bench: Bench) -> str:
    """Every route that a run uses answers malformed bodies with a 4xx."""
    routes = (
        "create_session",
        "create_model",
        "optim_step",
        "save_weights",
        "save_weights_for_sampler",
        "load_weights",
        "create_sampling_session",
    )
    for route in routes:
        await bench.demand_refused(
            route, {f"{route}: a text": "no request", f"{route}: a list": [1]}
        )
    return f"{len(routes)} routes"


@case("refuses an unknown model", needs=TRAINING, without=HANGS)
async def test_unknown_model(bench: Bench) -> str:
    """Opening clients of an unknown model is refused."""
    openings = {
        "a training client": bench.service.create_lora_training_client(
            "no/such-model", rank=bench.server.rank
        ),
        "a sampling client": bench.sample_once(base_model="no/such-model"),
    }
    await bench.demand_no_client("an unknown model", openings, PERMANENT)
    return "refused"


@option(
    "refuses a wrong key", without="anyone who reaches the address can sample, train and delete"
)
async def test_wrong_key(bench: Bench) -> str:
    """A wrong key is answered with 401 or 403."""
    status, reply = await bench.ask(
        "create_session",
        {"tags": [], "sdk_version": tinker.__version__, "type": "create_session"},
        key="tml-this-is-not-the-key",
    )
    assert status in (401, 403), f"{status} ({reply})"
    return str(status)


@case(
    "an unknown promise",
    without="after a restart of the server a run waits forever for lost results",
)
async def test_unknown_promise(bench: Bench) -> str:
    """A request for an unknown result is answered with a 4xx, but not 408, which means to ask again."""
    status, reply = await bench.ask(
        "retrieve_future", {"request_id": "00000000-no-such-request"}
    )
    if status == 429:
        raise NotTriedError("the server is busy (429)")
    assert 400 <= status < 500, f"{status} ({reply})"
    assert status != 408, f"{status} ({reply})"
    return str(status)
