"""The embedded service behind a proxy with the limits of an engine without frozen samplers: it samples only the
newest weights of an open training client, and nothing before such weights were saved once."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from benchmarks.rehearsal.proxy import Call, Proxy
from localtinker.bridge import Engine
from localtinker.bridge.capabilities import FROZEN_SAMPLERS, SAMPLE_FIRST
from localtinker.process import LocalTinker
from rtl_core.backend.tinker.services import Endpoint, TinkerService
from rtl_core.tinymodels import model_path

ENGINE = Engine(
    "skyrl", "0.4.0", "gpu", {FROZEN_SAMPLERS: "newest only", SAMPLE_FIRST: "later"}
)


class NewestOnly(Proxy):
    """Notes every call that such an engine would refuse, or serve with the wrong weights, in `wrong`."""

    def __init__(self, service: LocalTinker) -> None:
        super().__init__(service.base_url)
        self.api_key = service.api_key
        self.newest: dict[str, str] = {}
        """Training client -> name of its sampler weights, until it steps."""
        self.sampled: dict[str, str] = {}
        """Sampling session -> the training client whose weights it samples."""
        self.gone: set[str] = set()
        """Training clients that the engine has lost."""
        self.in_flight: set[str] = set()
        self.wrong: list[str] = []
        self.saved_once = False

    def forget(self) -> None:
        """Lose all training clients, as a restart does."""
        self.gone |= self.newest.keys()
        self.newest.clear()

    async def forward(self, call: Call) -> Response:
        said, trainer = call.said, call.said.get("model_id")
        if call.route == "save_weights_for_sampler":
            self.newest[trainer], self.saved_once = said["path"], True
        if call.route in ("forward_backward", "optim_step"):
            self.newest.pop(trainer, None)
            if self.in_flight:
                self.wrong.append(f"{call.route} while a sample is in flight")
        if call.route == "open saved weights":
            owner, _, name = said["model_path"].removeprefix("tinker://").split("/")
            if owner not in self.gone and self.newest.get(owner) != name:
                self.wrong.append(f"{said['model_path']} is not the newest")
                return JSONResponse({"detail": "not the newest weights"}, 400)
        if said.get("request_id") == "lost":
            return JSONResponse({"detail": "not loaded"}, 404)
        if call.route == "sample":
            owner = self.sampled.get(said["sampling_session_id"])
            if owner in self.gone:
                return JSONResponse({"request_id": "lost", "sample_sequence_ids": ["0"]})
            if owner is not None and owner not in self.newest:
                self.wrong.append(f"sampled {owner} after a step")
            if not self.saved_once:
                self.wrong.append("sampled before weights were saved")
        response = await super().forward(call)
        self._note(call, response)
        return response

    def _note(self, call: Call, response: Response) -> None:
        if response.status_code != 200:
            return
        if call.route == "open saved weights":
            owner = call.said["model_path"].removeprefix("tinker://").split("/")[0]
            self.sampled[_json(response)["sampling_session_id"]] = owner
        elif call.route == "sample":
            self.in_flight.add(_json(response)["request_id"])
        elif call.route == "answer of sample" and b"try_again" not in response.body:
            self.in_flight.discard(call.said["request_id"])


@contextmanager
def newest_only(state: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[NewestOnly]:
    """Run the service and such an engine before it. It needs no translation, so no bridge runs."""
    models = {"student": model_path("student")}
    with LocalTinker(models, state) as service, NewestOnly(service) as proxy:

        @contextmanager
        def reached(service: TinkerService, *_: Any, **__: Any) -> Iterator[TinkerService]:
            through = Endpoint(proxy.url, proxy.api_key, engine=ENGINE)
            yield service if service.is_local else replace(service, through=through)

        monkeypatch.setattr("rtl_core.backend.tinker.connect.reached", reached)
        monkeypatch.setattr("rtl_core.backend.tinker.reached", reached)
        yield proxy


def on(engine: NewestOnly) -> list[str]:
    """Overrides of the demo for a student on the engine and a teacher on the embedded service."""
    folder = json.dumps(str(model_path("student")))
    return [
        f"tinker.base_url={engine.url}",
        "tinker.teacher_base_url=local",
        f"tinker.local_models={{student = {folder}}}",
        "learning.grad_clip_norm=0",
    ]


def _json(response: Response) -> dict[str, Any]:
    return json.loads(response.body)
