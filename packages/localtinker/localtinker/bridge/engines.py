"""Which engine answers at an address, in which version and with which backend.

No engine says what it is. SkyRL and TuFT describe their routes in /openapi.json; `faces.json` holds the
descriptions of the versions that the bridge was written for. An engine whose routes or fields differ is
refused, because the bridge could translate it wrongly without an error.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from localtinker.bridge import capabilities
from localtinker.errors import LocalTinkerError

if TYPE_CHECKING:
    import httpx

API = "/api/v1"
CLOUD = "thinkingmachines.dev"
_PROBE_ROLE = "which-backend"
"""A role that no backend trains: its error tells the backend, and nothing is created."""


class EngineError(LocalTinkerError):
    """There is no engine at an address that the bridge could translate."""


class OtherVersionError(EngineError):
    """An engine of a version that the bridge was not written for."""


@dataclass(frozen=True)
class Engine:
    """An engine that needs the bridge.

    `backend` of SkyRL: "jax", "gpu" (FSDP or Megatron, which answer alike), or None while the engine is too
    busy to tell. `lacks` maps keys of `capabilities` to one sentence with the consequence.
    """

    name: str
    version: str
    backend: str | None
    lacks: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The answer of `GET /api/v1/local/engine`."""
        fields = asdict(self)
        return {"engine": fields.pop("name"), **fields}


def recognise(url: str, timeout_s: float = 20.0, key: str | None = None) -> Engine | None:
    """Return the engine at `url`, None if the server needs no bridge. `key` is sent as X-API-Key.

    Raises EngineError if nothing answers as a server of Tinker's protocol does (in particular a proxy's
    page), if it is an engine of an unknown version, or Tinker's cloud. Takes up to `timeout_s` seconds twice.
    """
    import httpx

    url = url.rstrip("/")
    host = urlsplit(url).hostname
    if host is None or not url.startswith(("http://", "https://")):
        raise EngineError(
            f"{url!r} is not a URL of a server", "give one such as http://HOST:8000"
        )
    if host.endswith(CLOUD):
        raise EngineError(
            f"{url} is Tinker's cloud, which the SDK talks to directly",
            "leave the bridge out, and set TINKER_API_KEY",
        )
    headers = {"X-API-Key": key} if key else {}
    try:
        with httpx.Client(base_url=url, headers=headers, timeout=timeout_s) as client:
            return _ask(client, url)
    except httpx.HTTPError as error:
        raise EngineError(
            f"{url} cannot be reached: {error or type(error).__name__}",
            "start the engine there, or correct the address",
        ) from error


def _ask(client: httpx.Client, url: str) -> Engine | None:
    description = _json(client.get("/openapi.json"), url)
    title = description.get("info", {}).get("title")
    if title not in _faces():
        # Not a server of the old protocol; but is it one of Tinker's protocol at all?
        healthy = client.get(f"{API}/healthz")
        _json(healthy, url)
        if healthy.status_code not in (200, 401, 403):
            raise EngineError(
                f"{url} does not answer as a Tinker server does ({API}/healthz: {healthy.status_code})",
                "give the address of the engine itself",
            )
        return None
    face = _faces()[title]
    name, version = face["engine"], face["version"]
    differences = _differences(face["routes"], _routes(description))
    if differences:
        raise OtherVersionError(
            f"{url} is a {name} of another version than {version}: {'; '.join(differences[:4])}",
            f"install {name} {version} there; the bridge was not written for other versions",
        )
    backend = _backend(client) if name == "skyrl" else None
    return Engine(name, version, backend, capabilities.lacks(name, backend))


def _json(response: httpx.Response, url: str) -> dict[str, Any]:
    """Return the object in the body. Raises EngineError if it is something else, such as a proxy's page."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if isinstance(body, dict):
        return body
    kind = response.headers.get("content-type", "no content type").partition(";")[0]
    raise EngineError(
        f"{url} answers {response.status_code} with {kind}, not as a Tinker server does",
        "a proxy may stand in between: give the address of the engine itself",
    )


@cache
def _faces() -> dict[str, Any]:
    """Title in /openapi.json -> engine, version, and its routes with the fields of their bodies (null: any)."""
    return json.loads(files(__package__).joinpath("faces.json").read_text())


def _routes(description: dict[str, Any]) -> dict[str, list[str]]:
    """Return method and path below /api/v1 -> sorted fields of the JSON body."""
    schemas = description.get("components", {}).get("schemas", {})
    routes = {}
    for path, methods in description.get("paths", {}).items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {}).get("content", {})
            reference = body.get("application/json", {}).get("schema", {}).get("$ref", "")
            fields = schemas.get(reference.rpartition("/")[2], {}).get("properties", {})
            if path.startswith(API):
                routes[f"{method.upper()} {path.removeprefix(API)}"] = sorted(fields)
    return routes


def _differences(known: dict[str, Any], served: dict[str, list[str]]) -> list[str]:
    differences = [f"no {route}" for route in known if route not in served]
    differences += [f"{route} is new" for route in served if route not in known]
    for route, fields in known.items():
        if fields is None or route not in served:
            continue
        changed = sorted(set(fields) ^ set(served[route]))
        if changed:
            differences.append(f"{route} differs in {', '.join(changed)}")
    return differences


def _backend(client: httpx.Client) -> str | None:
    """Return SkyRL's backend, told by the error for a role that none of them trains. It leaves a session and a
    model that was never created in SkyRL's database."""
    import httpx

    session = client.post(
        f"{API}/create_session", json={"tags": [], "sdk_version": "bridge"}
    ).json()
    model = {
        "session_id": session["session_id"],
        "base_model": _PROBE_ROLE,
        "lora_config": {"rank": 1},
        "model_role": _PROBE_ROLE,
    }
    future = client.post(f"{API}/create_model", json=model).json()
    try:
        failed = client.post(
            f"{API}/retrieve_future", json={"request_id": future["request_id"]}
        )
    except httpx.TimeoutException:
        return None  # the engine works on other requests
    return "jax" if "JaxBackend" in failed.text else "gpu"
