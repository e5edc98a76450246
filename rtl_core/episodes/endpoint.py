"""A model behind an OpenAI-compatible endpoint (`/chat/completions`): vLLM, SGLang, llama.cpp, or a provider.

The server renders the conversation and parses the calls; the history has texts and numbers of tokens, but no tokens.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from rtl_core.episodes.episode import Messages, Reply
from rtl_core.errors import BackendUnavailableError, MalformedAnswerError, PolicyError
from rtl_core.history.columns import storable
from rtl_core.prompting.calls import Call
from rtl_core.types.finding import Finding
from rtl_grader.words import did_you_mean

TRIES = 6
TIMEOUT_S = 600.0
LONGEST_PAUSE_S = 300.0
"""A server that asks for a longer pause (`Retry-After`) gets the next request after this one."""
MOST_BYTES = 64 << 20
"""Size of an answer, above which it is not read further."""
MOST_TOKENS = 1 << 24
"""A larger number of tokens is none."""
COMPLETE = (
    "stop",
    "tool_calls",
    "function_call",
    "eos",
    "eos_token",
    "stop_sequence",
    "end_turn",
)
"""Values of `finish_reason` of an answer that its model ended. Of any other it is unknown whether it is whole: cut by a
limit or a filter, aborted, or not said."""
OF_ONE = (400, 413, 422)
"""Statuses of a request that is refused for what it holds: too long for the model's context, or stopped by a filter."""
PROBE = ({"role": "user", "content": "Answer OK."},)
"""A conversation that nothing but the settings could make a server refuse."""
ASK_S = 10.0
"""Seconds within which a server must answer `check`."""
KEY = "OPENAI_API_KEY"
"""Environment variable with the API key, if the endpoint needs one."""


@dataclass(frozen=True)
class Endpoint:
    """A policy that sends requests to an endpoint. It is thread-safe."""

    url: str
    """Base URL including the version: http://localhost:8000/v1."""
    model: str
    temperature: float = 0.2
    top_p: float = 0.95
    reply_tokens: int = 4096
    """Largest number of tokens in a turn."""
    retry_s: float = 1.0
    """Delay before the second try; it doubles for each further one."""
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=TIMEOUT_S))
    names: dict[str, bool] = field(default_factory=dict)
    """Names of models under which the server has answered, and whether `other_names` has returned them."""

    def other_names(self) -> set[str]:
        """Return the names of models under which the server has answered and which are not an alias of the one
        asked for, each once."""
        others = {name for name, told in self.names.items() if not told}
        self.names.update(dict.fromkeys(others, True))
        return others

    def reply(
        self,
        messages: Messages,
        tools: Messages = (),
        most_tokens: int = MOST_TOKENS,
    ) -> Reply:
        """The next turn; refused if the server does not answer this conversation (it exceeds the model's context, or a
        filter stops it) but answers others with the same settings.

        Raises:
            BackendUnavailableError: the endpoint does not answer after several tries.
            PolicyError: it refuses the request.
        """
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": min(self.reply_tokens, most_tokens),
            "temperature": self.temperature,
            "top_p": self.top_p,
        }
        if tools:
            body["tools"] = list(tools)
        response = self._post(body)
        status, text = response.status_code, response.text
        if status in OF_ONE and self._post(body | {"messages": PROBE}).is_success:
            return Reply("", cut=True, refusal=f"refused ({status}): {_shown(text, 300)}")
        if status >= 400 or text.lstrip().startswith("<"):  # a web page
            raise PolicyError(
                f"{self.url} refuses the request ({status}): {_shown(text, 300)}",
                "check its address, which usually ends in /v1, and the model's name; "
                f"a key is taken from {KEY}",
            )
        reply = _read(response, self.url)
        if reply.model not in self.model and self.model not in reply.model:
            self.names.setdefault(reply.model, False)
        return reply

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        url, why, asked_s = f"{self.url.rstrip('/')}/chat/completions", "", 0.0
        for attempt in range(TRIES):
            if attempt:
                time.sleep(max(self.retry_s * 2 ** (attempt - 1), asked_s))
            try:
                response = self._receive(url, body)
            except httpx.HTTPError as error:
                why, asked_s = str(error) or repr(error), 0.0
                continue
            status = response.status_code
            if status not in (408, 429) and status < 500:
                return response
            why, asked_s = f"{status}: {_shown(response.text, 200)}", _pause_s(response)
        raise _unreachable(self.url, why)

    def _receive(self, url: str, body: dict[str, Any]) -> httpx.Response:
        """Send a request; MalformedAnswerError when the answer does not end within `MOST_BYTES`."""
        received = bytearray()
        with self.client.stream("POST", url, json=body, headers=_headers()) as response:
            for part in response.iter_bytes():
                received += part
                if len(received) > MOST_BYTES:
                    raise MalformedAnswerError(
                        f"{self.url} answers with more than {MOST_BYTES:,} bytes",
                        "it must speak OpenAI's protocol",
                    )
        kept = {"retry-after": response.headers.get("retry-after", "")}
        return httpx.Response(response.status_code, headers=kept, content=bytes(received))


def _headers() -> dict[str, str]:
    key = os.environ.get(KEY, "").strip()
    if not re.fullmatch(r"[!-~]*", key):  # an HTTP library's error would show it
        raise PolicyError(
            f"{KEY} contains characters that no key has", "set it to the key alone, on one line"
        )
    return {"Authorization": f"Bearer {key}"} if key else {}


def _shown(text: str, most: int) -> str:
    """The beginning of a server's text for an error message, without the key, which a server may repeat."""
    key = os.environ.get(KEY, "").strip()
    return (text.replace(key, "***") if key else text)[:most]


def _pause_s(response: httpx.Response) -> float:
    """Seconds that a server asks to wait, as a number or as a date."""
    asked = response.headers["retry-after"]
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(asked).timestamp() - time.time()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), LONGEST_PAUSE_S) if math.isfinite(seconds) else 0.0


def check_serves(url: str, model: str) -> Finding:
    """Ask an endpoint for its models; nothing is sampled."""
    about, remedy = (
        "endpoint",
        f"check its address, which usually ends in /v1, and the key in {KEY}",
    )
    try:
        answer = httpx.get(f"{url.rstrip('/')}/models", headers=_headers(), timeout=ASK_S)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        text = f"{url} does not answer: {str(error) or repr(error)}"
        return Finding(
            about, "wrong", text, "start the server, or change the address", passing=True
        )
    if answer.status_code in (401, 402, 403):
        return Finding(about, "wrong", f"{url} refuses access ({answer.status_code})", remedy)
    try:
        names = sorted(str(entry["id"]) for entry in answer.json()["data"])
    except (ValueError, LookupError, TypeError):
        text = f"{url} lists no models ({answer.status_code}): its first answer shows whether it serves {model}"
        return Finding(about, "warning", text, remedy)
    if model in names:
        return Finding(about, "ok", f"{url} serves {model}")
    served = did_you_mean(model, names, f"it serves {', '.join(names[:10]) or 'none'}")
    return Finding(about, "wrong", f"{url} does not serve {model}", served)


def check_reachable(url: str) -> None:
    """Check that a server accepts a connection within ten seconds, whatever it answers. Raises
    BackendUnavailableError."""
    try:
        httpx.get(url, timeout=10)
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.InvalidURL) as error:
        raise _unreachable(url, str(error) or repr(error)) from None
    except httpx.HTTPError:
        pass  # there is a server; the first real request will show the error


def _unreachable(url: str, why: str) -> BackendUnavailableError:
    return BackendUnavailableError(
        f"{url} does not answer: {why}", "start the server, or name the address of another"
    )


def _read(response: httpx.Response, url: str) -> Reply:
    try:
        data = response.json()
        choice = data["choices"][0]
        message = choice["message"]
        calls = tuple(_call(call) for call in message.get("tool_calls") or ())
        text, end = (
            _text(message.get("content") or ""),
            str(choice.get("finish_reason")).lower(),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise MalformedAnswerError(
            f"{url} answers with something else than a chat completion: {_shown(response.text, 200)}",
            "it must speak OpenAI's protocol",
        ) from error
    # The answer is paid: nothing beside its text makes it worthless.
    about = data.get("usage")
    usage = about if isinstance(about, dict) else {}
    thoughts = (message.get("reasoning_content"), message.get("reasoning"))
    thought = next((one for one in thoughts if isinstance(one, str) and one), "")
    model = data.get("model")
    return Reply(
        text=text,
        thought=_text(thought),
        calls=calls,
        n_tokens=_count(usage.get("completion_tokens")),
        cut=end not in COMPLETE,
        n_prompt=_count(usage.get("prompt_tokens")),
        model=_text(model) if isinstance(model, str) else "",
    )


def _text(value: Any) -> str:
    """A text that can be stored: JSON may hold half of a surrogate pair. Raises TypeError for anything else."""
    if not isinstance(value, str):
        raise TypeError("no text")
    return storable(value)


def _count(value: Any) -> int:
    """A number of tokens; 0 if the server gives none that is possible."""
    try:
        number = int(value or 0)
    except (ValueError, TypeError, OverflowError):
        return 0
    return number if 0 <= number <= MOST_TOKENS else 0


def _call(call: dict[str, Any]) -> Call:
    """Read a call; some servers send the arguments as an object instead of its text."""
    function = call["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {})
    return Call(_text(function["name"]), _text(arguments), str(call.get("id") or ""))
