"""A model behind an OpenAI-compatible endpoint (`/chat/completions`): vLLM, SGLang, llama.cpp, or a provider.

The server renders the conversation and parses the calls; the history has texts and numbers of tokens, but no tokens.
"""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from rtl_core.episodes.episode import Messages, Reply
from rtl_core.errors import BackendUnavailableError, MalformedAnswerError, PolicyError
from rtl_core.prompting.calls import Call

TRIES = 6
TIMEOUT_S = 600.0
_TOO_LONG = re.compile(r"context|too long|max(?:imum)?[\w ]*(?:length|tokens)", re.I)
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

    def reply(
        self,
        messages: Messages,
        tools: Messages = (),
        most_tokens: int | None = None,
    ) -> Reply:
        """The next turn; cut and empty if the conversation exceeds the model's context.

        Raises:
            BackendUnavailableError: the endpoint does not answer after several tries.
            PolicyError: it refuses the request.
        """
        limit = (
            self.reply_tokens if most_tokens is None else min(self.reply_tokens, most_tokens)
        )
        body: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": limit,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }
        if tools:
            body["tools"] = list(tools)
        response = self._post(body)
        status, text = response.status_code, response.text
        if status == 400 and len(messages) > 2 and _TOO_LONG.search(text):
            return Reply("", cut=True)
        if status >= 400 or text.lstrip().startswith("<"):  # a web page
            raise PolicyError(
                f"{self.url} refuses the request ({status}): {text[:300]}",
                f"check --endpoint, which usually ends in /v1, and --model; a key is taken from {KEY}",
            )
        return _read(response, self.url)

    def _post(self, body: dict[str, Any]) -> httpx.Response:
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url, why = f"{self.url.rstrip('/')}/chat/completions", ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(self.retry_s * 2 ** (attempt - 1))
            try:
                response = self.client.post(url, json=body, headers=headers)
            except httpx.HTTPError as error:
                why = str(error) or repr(error)
                continue
            status = response.status_code
            if status not in (408, 429) and status < 500:
                return response
            why = f"{status}: {response.text[:200]}"
        raise _unreachable(self.url, why)


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
        f"{url} does not answer: {why}", "start the server, or name another with --endpoint"
    )


def _read(response: httpx.Response, url: str) -> Reply:
    try:
        data = response.json()
        choice = data["choices"][0]
        message, usage = choice["message"], data.get("usage") or {}
        calls = tuple(_call(call) for call in message.get("tool_calls") or ())
        text = message.get("content") or ""
        thought = message.get("reasoning_content") or message.get("reasoning") or ""
        if not isinstance(text, str) or not isinstance(thought, str):
            raise TypeError("no text")
        return Reply(
            text=text,
            thought=thought,
            calls=calls,
            n_tokens=int(usage.get("completion_tokens") or 0),
            cut=choice.get("finish_reason") == "length",
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise MalformedAnswerError(
            f"{url} answers with something else than a chat completion: {response.text[:200]}",
            "it must speak OpenAI's protocol",
        ) from error


def _call(call: dict[str, Any]) -> Call:
    """Read a call; some servers send the arguments as an object instead of its text."""
    function = call["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments or {})
    return Call(str(function["name"]), arguments, str(call.get("id") or ""))
