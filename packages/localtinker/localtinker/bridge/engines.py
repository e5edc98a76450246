"""Which engine answers at an address, in which version and with which backend.

No engine says what it is. SkyRL and TuFT describe their paths and schemas in /openapi.json; `faces.json` holds the
descriptions of the versions that the bridge was written for. An engine whose description differs is refused, because
the bridge could translate it wrongly without an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from localtinker.bridge import capabilities
from localtinker.errors import LocalTinkerError
from localtinker.futures import Json
from localtinker.settings import API

if TYPE_CHECKING:
    import httpx

CLOUD = "thinkingmachines.dev"
_PROBE = "which-backend"
"""A role that no backend trains: its error tells the backend, and nothing is created."""


class EngineError(LocalTinkerError):
    """There is no engine at an address that the bridge could translate."""


class OtherVersionError(EngineError):
    """An engine of a version that the bridge was not written for."""


@dataclass(frozen=True)
class Engine:
    """An engine that needs the bridge.

    `backend` of SkyRL: "jax", "gpu" (FSDP or Megatron, which answer alike), or None while the engine is too
    busy to tell. `lacks` maps keys of `capabilities` to one sentence with the consequence. `models` are the base
    models that it serves.
    """

    name: str
    version: str
    backend: str | None
    lacks: Mapping[str, str]
    models: tuple[str, ...] = ()

    def as_json(self) -> Json:
        """The answer of `GET /api/v1/local/engine`."""
        return {
            "engine": self.name,
            "version": self.version,
            "backend": self.backend,
            "lacks": self.lacks,
        }


def recognise(url: str, timeout_s: float = 20.0, key: str | None = None) -> Engine | None:
    """Return the engine at `url`, None if the server needs no bridge. `key` is sent as X-API-Key.

    Raises EngineError if nothing answers as a server of Tinker's protocol does (in particular a proxy's page), if it
    is Tinker's cloud, and OtherVersionError. A request may take `timeout_s` seconds.
    """
    import httpx

    if (urlsplit(url).hostname or "").endswith(CLOUD):
        raise EngineError(
            f"{url} is Tinker's cloud, which the SDK talks to directly",
            "leave the bridge out, and set TINKER_API_KEY",
        )
    headers = {"X-API-Key": key or ""}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=timeout_s) as http:
            return _ask(http, url)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise EngineError(
            f"{url} cannot be reached: {error or type(error).__name__}",
            "start the engine there, or correct the address",
        ) from error


def _ask(http: httpx.Client, url: str) -> Engine | None:
    description = _json(http.get("/openapi.json"), url)
    face = _faces().get(description.get("info", {}).get("title"))
    if face is None:
        _json(http.get(f"{API}/healthz"), url)
        return None
    name, version = face["name"], face["version"]
    changed = sorted(set(face["says"]) ^ _says(description))
    if changed:
        raise OtherVersionError(
            f"{url} is a {name} of another version than {version}: it differs in {'; '.join(changed)[:300]}",
            f"install {name} {version} there: the bridge was not written for other versions",
        )
    backend = _backend(http) if name == "skyrl" else None
    models = http.get(f"{API}/get_server_capabilities").json()["supported_models"]
    served = tuple(model["model_name"] for model in models)
    return Engine(name, version, backend, capabilities.lacks(name, backend), served)


def _json(response: httpx.Response, url: str) -> Json:
    """Return the object in the body. Raises EngineError if it is something else, such as a proxy's page."""
    kind = response.headers.get("content-type", "no content")
    if not kind.startswith("application/json"):
        raise EngineError(
            f"{url} answers {response.status_code} with {kind}, not as a Tinker server does",
            "a proxy may stand in between: give the address of the engine itself",
        )
    body: Json = response.json()
    return body


@cache
def _faces() -> Json:
    """Title in /openapi.json -> name, version and what it says."""
    faces: Json = json.loads(files(__package__).joinpath("faces.json").read_text())
    return faces


def _says(description: Json) -> set[str]:
    """Return the paths, and each schema with its fields, of an OpenAPI description."""
    says = set(description["paths"])
    for name, schema in description.get("components", {}).get("schemas", {}).items():
        if "ValidationError" not in name:  # FastAPI's own
            says.add(" ".join([name, *schema.get("properties", ())]))
    return says


def _backend(http: httpx.Client) -> str | None:
    """Return SkyRL's backend. Leaves a session, and a client that was never created, in SkyRL's database."""
    import httpx

    session = http.post(
        f"{API}/create_session", json={"tags": [], "sdk_version": _PROBE}
    ).json()
    client = {"base_model": _PROBE, "lora_config": {"rank": 1}, "model_role": _PROBE}
    promise = http.post(f"{API}/create_model", json={**session, **client}).json()["request_id"]
    try:
        failed = http.post(f"{API}/retrieve_future", json={"request_id": promise})
    except httpx.TimeoutException:
        return None  # the engine starts, or works on other requests
    if failed.status_code == 408:
        return None
    return "jax" if "JaxBackend" in failed.text else "gpu"
