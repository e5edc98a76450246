"""The embedded Tinker service with a cloud's latencies in front: `python -m benchmarks.slow_service` and the service's own options.

Seconds come from the environment, for one train step of SLOW_GROUPS groups:

- SLOW_SAMPLE: a step's sampling. Its requests, one a group, run side by side and end at even distances between half of that time and
  all of it, since answers differ in length;
- SLOW_SCORE: a step's teacher scoring, one answer after the other (of SLOW_GROUPS × SLOW_ANSWERS);
- SLOW_TRAIN: a train step, waited for before its optimizer step.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Slow:
    """Middleware that holds requests back before the service sees them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._groups, answers = int(os.environ["SLOW_GROUPS"]), int(os.environ["SLOW_ANSWERS"])
        self._sample_s, self._train_s = float(os.environ["SLOW_SAMPLE"]), float(os.environ["SLOW_TRAIN"])
        self._score_s = float(os.environ["SLOW_SCORE"]) / (self._groups * answers)
        self._samples = itertools.count()
        self._scorer = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" else ""
        if path.endswith("/asample"):
            body = await _whole(receive)
            if b'"prompt_logprobs":true' in body.replace(b" ", b""):
                async with self._scorer:
                    await asyncio.sleep(self._score_s)
            else:
                place = next(self._samples) % self._groups
                await asyncio.sleep(self._sample_s * (0.5 + 0.5 * place / max(self._groups - 1, 1)))
            receive = _again(body, receive)
        elif path.endswith("/optim_step"):
            await asyncio.sleep(self._train_s)
        await self._app(scope, receive, send)


async def _whole(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if message["type"] != "http.request" or not message.get("more_body"):
            return body


def _again(body: bytes, receive: Receive) -> Receive:
    """A body that was read, to be read again."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return messages.pop() if messages else await receive()

    return replay


def main() -> int:
    from rtl_core.localtinker import __main__ as service
    from rtl_core.localtinker import app

    plain = app.create_app

    def slow_app(*arguments):  # type: ignore[no-untyped-def]
        made = plain(*arguments)
        made.add_middleware(Slow)
        return made

    app.create_app = slow_app
    return service.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
