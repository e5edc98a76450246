"""An engine that answers at once: SkyRL 0.4.0's routes, and what the SDK 0.38 needs to talk to it directly."""

import json
import sys
from itertools import count

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from localtinker import http_server
from localtinker.bridge.engines import _faces
from localtinker.settings import API
from localtinker.wire import (
    SampledSequence,
    decode_train_request,
    encode_sample_response,
    encode_train_output,
    pb,
)

LENGTH = 256
"""Tokens of each answer."""
TITLE = "Tinker API Mock"


def openapi(says: list[str]) -> dict:
    """Return the description that FastAPI would give of paths and schemas, as `faces.json` holds them."""
    paths = [one for one in says if one.startswith("/")]
    schemas = [one.split() for one in says if not one.startswith("/")]
    fields: dict = {name: {"properties": {key: {} for key in keys}} for name, *keys in schemas}
    return {
        "info": {"title": TITLE},
        "paths": {path: {} for path in paths},
        "components": {"schemas": fields},
    }


class Engine:
    """Keeps the promised results, as a server does."""

    def __init__(self) -> None:
        self.ids = count(1)
        self.results: dict[str, Response] = {}
        self.newest = ""

    def promise(self, result: dict | bytes, **more) -> dict:
        number = str(next(self.ids))
        proto = isinstance(result, bytes)
        self.results[number] = (
            Response(result, media_type="application/x-protobuf")
            if proto
            else JSONResponse(result)
        )
        return {"request_id": number, **more}

    async def answer(self, request: Request) -> Response:
        call = request.url.path.removeprefix(API).strip("/").replace("/", "_").replace(".", "_")
        body = await request.body()
        if call == "forward_backward":
            batch = decode_train_request(body, None)
            logprobs = [np.zeros(len(datum.tokens_T), np.float32) for datum in batch.data]
            return JSONResponse(self.promise(encode_train_output({"logprobs": logprobs}, {})))
        asked = json.loads(body) if body else {}
        if call == "retrieve_future":
            return self.results[asked["request_id"]]
        return JSONResponse(getattr(self, call, self.other)(asked))

    def other(self, asked: dict) -> dict:
        sampler = {"sampler_id": "sampling", "base_model": "student", "model_path": self.newest}
        return self.promise({"model_id": "model_1"}, **sampler)

    def openapi_json(self, asked: dict) -> dict:
        return openapi(_faces()[TITLE]["says"])

    def client_config(self, asked: dict) -> dict:
        return {"parallel_fwdbwd_chunks": False}

    def healthz(self, asked: dict) -> dict:
        return {"status": "ok"}

    def get_server_capabilities(self, asked: dict) -> dict:
        return {"supported_models": [{"model_name": "student"}]}

    def create_session(self, asked: dict) -> dict:
        return {"session_id": f"session_{next(self.ids)}"}

    def create_sampling_session(self, asked: dict) -> dict:
        return {"sampling_session_id": f"sampling_{next(self.ids)}"}

    def get_info(self, asked: dict) -> dict:
        return {
            "model_id": asked["model_id"],
            "model_data": {"model_name": "student", "lora_config": {"rank": 8}},
        }

    def asample(self, asked: dict) -> dict:
        length = sum(len(chunk["tokens"]) for chunk in asked["prompt"]["chunks"])
        tokens = [7] * min(LENGTH, asked["sampling_params"]["max_tokens"])
        sequences = [SampledSequence(tokens, [-1.0] * len(tokens), True)] * asked["num_samples"]
        message = pb.SampleResponse.FromString(encode_sample_response(sequences, None))
        if asked.get("prompt_logprobs"):
            last = (
                asked.get("prompt_logprobs_last_n") or length - 1
            )  # None: asked through the bridge
            message.prompt_logprobs = np.array(
                [np.nan] * (length - last) + [-1.0] * last, np.float32
            ).tobytes()
        ids = [f"sequence_{next(self.ids)}" for _ in sequences]
        return self.promise(message.SerializeToString(), sample_sequence_ids=ids)

    def save_weights(self, asked: dict) -> dict:
        path = f"tinker://model_1/weights/{asked['path']}"
        return self.promise({"path": path, "type": "save_weights"})

    def save_weights_for_sampler(self, asked: dict) -> dict:
        self.newest = f"tinker://model_1/sampler_weights/{asked['path']}"
        return self.promise({"path": self.newest, "type": "save_weights_for_sampler"})

    def training_runs_model_1_checkpoints(self, asked: dict) -> dict:
        return {
            "checkpoints": [
                {"tinker_path": self.newest, "time": "2026", "checkpoint_type": "sampler"}
            ]
        }


def main() -> None:
    """Serve on a free loopback port, which is printed as `localtinker.child` does."""
    from localtinker.child import announce, run

    engine = Engine()
    app = Starlette(
        routes=[Route("/{rest:path}", engine.answer, methods=["GET", "POST", "DELETE"])]
    )
    listener = http_server.listen("127.0.0.1", int(sys.argv[1]))
    sys.exit(run(lambda: http_server.serve(app, listener, announce)))


if __name__ == "__main__":
    main()
