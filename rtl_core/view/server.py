"""The web server of the view: on loopback only, for a single user.

Other websites must not read it through the user's browser: requests for another host name are refused (DNS
rebinding), and starting a simulator needs a header that only our own script can send. Model texts are
escaped, and the content security policy of every response allows only our own scripts, styles and URLs.
Other users of the machine can also reach loopback.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from importlib.resources import files
from typing import Annotated, Any

from cachetools import LRUCache
from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from rtl_core.errors import UserError
from rtl_core.history.connection import HistoryBusyError
from rtl_core.history.store import History
from rtl_core.reporting.figures.held_out import Against
from rtl_core.reporting.report import safe_json
from rtl_core.reporting.text import cell
from rtl_core.reporting.theme import LEVELS, OUTCOMES, PALETTE, css_variables
from rtl_core.types.tell import Tell
from rtl_core.view import code, one, pages
from rtl_core.view.links import group_link, link, rollout_link, step_link
from rtl_core.view.questions import Filters, Name, Page
from rtl_grader import http_server
from rtl_grader.words import escaping_templates

HOSTS = ["127.0.0.1", "localhost"]
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src "
    "'self'; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
MOST_CACHED = 64
"""Maximum pages in the cache."""
ListFilters = Annotated[Filters, Query()]


def create_app(history: History) -> FastAPI:
    """The view of a history that is opened read-only."""
    app = FastAPI(title="rtl-distill view", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=HOSTS)

    @app.middleware("http")
    async def guard(request: Request, answer: Callable[[Request], Any]) -> Response:
        if (
            request.method not in ("GET", "HEAD")
            and request.headers.get("x-rtl-distill-view") != "1"
        ):
            return Response("only the view's own pages may send this request", 403, HEADERS)
        response: Response = await answer(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    renderer = _Renderer(history)
    _answer_errors(app, renderer)
    _answer_pages(app, renderer)
    _answer_waves(app, renderer)
    colours = _colours()

    @app.get("/stamp")
    def stamp() -> Response:
        return JSONResponse({"stamp": renderer.stamp()})

    @app.get("/static/plotly.js")
    def plotly() -> Response:
        from plotly.offline import get_plotlyjs

        # The only large file, and the only one that does not change with the page that needs it.
        headers = {**HEADERS, "Cache-Control": "max-age=3600"}
        return Response(get_plotlyjs(), media_type="text/javascript", headers=headers)

    @app.get("/static/colours.css")
    def style() -> Response:
        return Response(colours, media_type="text/css")

    @app.get("/static/roles.js")
    def roles() -> Response:
        return FileResponse(str(files("rtl_core.reporting") / "page" / "roles.js"))

    app.mount("/static", StaticFiles(packages=[("rtl_core.view", "static")]))
    return app


class _Renderer:
    """Renders pages of a history, and caches them until the history changes."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._templates = _templates()
        self._pages: LRUCache[tuple[str, str], str] = LRUCache(MOST_CACHED)
        self._guard = threading.Lock()

    def fill(self, template: str, **values: Any) -> str:
        return self._templates.get_template(template).render(
            values, history=str(self.history.path)
        )

    def stamp(self) -> str:
        """A value that changes with the history, from the file's metadata."""
        try:
            status = self.history.path.stat()
        except FileNotFoundError:
            return ""
        return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"

    def page(
        self, request: Request, build: Callable[..., pages.Values], *arguments: Any
    ) -> Response:
        """The page that the function `build` of pages.py describes, in the template of its name."""
        key = str(request.url), self.stamp()
        with self._guard:
            if key in self._pages:
                return HTMLResponse(self._pages[key])
        page = self.fill(
            f"{build.__name__}.html",
            **{"live": False, **build(self.history, *arguments)},
            stamp=key[1],
        )
        with self._guard:
            self._pages[key] = page
        return HTMLResponse(page)

    def error(self, status: int, message: str, hint: str | None = None) -> Response:
        text = self.fill(
            "error.html", status=status, message=message, hint=hint or "", stamp="", live=False
        )
        return HTMLResponse(text, status, HEADERS)


def _answer_errors(app: FastAPI, renderer: _Renderer) -> None:
    @app.exception_handler(UserError)
    def known(request: Request, error: UserError) -> Response:
        return renderer.error(
            503 if isinstance(error, HistoryBusyError) else 404, error.message, error.hint
        )

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        return renderer.error(error.status_code, str(error.detail))

    @app.exception_handler(RequestValidationError)
    def misread(request: Request, error: RequestValidationError) -> Response:
        items = [(item["loc"][-1], item["msg"]) for item in error.errors()]
        what = ", ".join(f"{name}: {message}" for name, message in items)
        return renderer.error(
            400,
            f"this address is not valid: {what}",
            "follow a link, or start at the list of runs",
        )


def _answer_pages(app: FastAPI, renderer: _Renderer) -> None:
    @app.get("/")
    def home(
        request: Request,
        runs: Annotated[list[str] | None, Query(max_length=50)] = None,
        against: Against = "step",
    ) -> Response:
        return renderer.page(request, pages.home, runs or [], against)

    @app.get("/run")
    def run(request: Request, run: Name, page: Page = 0, against: Against = "step") -> Response:
        return renderer.page(request, pages.run, run, page, against)

    @app.get("/pictures")
    def pictures(request: Request, run: Name) -> Response:
        return renderer.page(request, pages.pictures, run)

    @app.get("/step")
    def step(request: Request, filters: ListFilters) -> Response:
        if not filters.evaluation and not filters.step.isdecimal():
            raise HTTPException(400, "a step is a number; an evaluation is named by its key")
        order = request.query_params.get("order", "")
        return renderer.page(request, pages.step, filters, order)

    @app.get("/group")
    def group(request: Request, filters: ListFilters) -> Response:
        return renderer.page(request, pages.group, filters)

    @app.get("/rollouts")
    def rollouts(request: Request, filters: ListFilters) -> Response:
        return renderer.page(request, pages.rollouts, filters)

    @app.get("/wrong")
    def wrong(request: Request, run: Name) -> Response:
        return renderer.page(request, pages.wrong, run)

    @app.get("/mistakes")
    def mistakes(request: Request, run: Name) -> Response:
        return renderer.page(request, pages.mistakes, run)

    @app.get("/rollout")
    def rollout(
        request: Request,
        key: Name,
        against: Name = "",
        overlay: Name = "kl",
        token: Page = 0,
        waves: bool = False,
    ) -> Response:
        # A link on another website must not start a simulator.
        waves = waves and request.headers.get("sec-fetch-site") in (None, "none", "same-origin")
        return renderer.page(request, pages.rollout, key, against, overlay, token, waves)


def _answer_waves(app: FastAPI, renderer: _Renderer) -> None:
    simulating = asyncio.Lock()
    drawings: LRUCache[str, str] = LRUCache(MOST_CACHED)

    @app.post("/waves")
    async def waves(
        request: Request, key: Annotated[str, Body(embed=True, max_length=400)]
    ) -> Response:
        """Grade the rollout again and record waves, one at a time, since the simulators of a run need the cores."""
        async with simulating:
            if await request.is_disconnected():
                return Response(status_code=204)  # the user left the page while waiting
            if key in drawings:
                return HTMLResponse(drawings[key])
            values = await run_in_threadpool(pages.waves, renderer.history, key)
            page = renderer.fill("waves.html", **values)
            if values["error"] is None:
                drawings[key] = page
            return HTMLResponse(page)


def _templates() -> Environment:
    environment = escaping_templates("rtl_core.view")
    environment.globals.update(
        link=link,
        rollout_link=rollout_link,
        group_link=group_link,
        step_link=step_link,
        outcomes=OUTCOMES,
        level_names=list(LEVELS),
        against_words=one.AGAINST,
    )
    environment.filters.update(
        cell=cell,
        json=safe_json,
        role=lambda outcome: OUTCOMES.get(outcome, ("@muted", ""))[0].lstrip("@"),
        words=_words,
    )
    return environment


def _words(outcome: str | None) -> str:
    return (
        "not graded yet"
        if outcome is None
        else OUTCOMES.get(outcome, ("", outcome.replace("_", " ")))[1]
    )


def _colours() -> str:
    """The style sheet of all colours."""
    rules = [
        f".fill-{role} {{ fill: var(--{role}); }} .ink-{role} {{ color: var(--{role}); }}"
        for role in PALETTE
    ]
    return "\n".join([css_variables(), code.style(), *rules])


def serve(history: History, port: int, announce: Tell) -> None:
    """Serve the view until Ctrl-C; `announce` receives its address once it accepts requests."""
    listener = http_server.listen("127.0.0.1", port)
    threading.Thread(target=_warm, daemon=True).start()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(
            http_server.serve(
                create_app(history),
                listener,
                lambda address: announce(f"{address}/"),
                grace_s=1,
            )
        )


def _warm() -> None:
    """Import what the page of a rollout needs, while the user looks at the runs."""
    import huggingface_hub.errors  # noqa: F401
    import tokenizers  # noqa: F401

    code.coloured("module m; endmodule")


def has_screen() -> bool:
    """Return whether this machine has a display for a browser."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
