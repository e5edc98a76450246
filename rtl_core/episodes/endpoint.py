"""A model behind an OpenAI-compatible endpoint (`/chat/completions`): vLLM, SGLang, llama.cpp, or a provider.

The server renders the conversation and parses the calls; the history has texts and numbers of tokens, but no tokens.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from rtl_core.episodes.episode import Reply
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
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] = (),
        most_tokens: int | None = None,
    ) -> Reply:
        """The next turn; cut and empty if the conversation exceeds the model's context.

        Raises:
            BackendUnavailableError: the endpoint does not answer after several tries.
            PolicyError: it refuses the request.
        """
        limit = self.reply_tokens if most_tokens is None else min(self.reply_tokens, most_tokens)
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": list(messages),
            "max_tokens": limit,
        }
        asked |= {
            "temperature": self.temperature,
            "top_p": self.top_p,
            **({"tools": list(tools)} if tools else {}),
        }
        answered = self._post(asked)
        if answered.status_code == 400 and len(messages) > 2 and _TOO_LONG.search(answered.text):
            return Reply("", cut=True)
        if answered.status_code >= 400 or answered.text.lstrip().startswith("<"):  # a web page
            raise PolicyError(
                f"{self.url} refuses the request ({answered.status_code}): {answered.text[:300]}",
                f"check --endpoint, which usually ends in /v1, and --model; a key is taken from {KEY}",
            )
        return _read(answered, self.url)

    def _post(self, asked: dict[str, Any]) -> httpx.Response:
        key = os.environ.get(KEY)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        why = ""
        for attempt in range(TRIES):
            if attempt:
                time.sleep(self.retry_s * 2 ** (attempt - 1))
            try:
                answered = self.client.post(
                    f"{self.url.rstrip('/')}/chat/completions", json=asked, headers=headers
                )
            except httpx.HTTPError as error:
                why = str(error) or repr(error)
                continue
            if answered.status_code not in (408, 429) and answered.status_code < 500:
                return answered
            why = f"{answered.status_code}: {answered.text[:200]}"
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


def _read(answered: httpx.Response, url: str) -> Reply:
    try:
        told = answered.json()
        choice = told["choices"][0]
        message, usage = choice["message"], told.get("usage") or {}
        calls = []
        for call in message.get("tool_calls") or ():
            arguments = call["function"][
                "arguments"
            ]  # some servers send an object instead of its text
            words = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
            calls.append(Call(str(call["function"]["name"]), words, str(call.get("id") or "")))
        text, thought = (
            message.get("content"),
            message.get("reasoning_content") or message.get("reasoning"),
        )
        if not isinstance(text or "", str) or not isinstance(thought or "", str):
            raise TypeError("no text")
        return Reply(
            text=text or "",
            thought=thought or "",
            calls=tuple(calls),
            n_tokens=int(usage.get("completion_tokens") or 0),
            cut=choice.get("finish_reason") == "length",
        )
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise MalformedAnswerError(
            f"{url} answers with something else than a chat completion: {answered.text[:200]}",
            "it must speak OpenAI's protocol",
        ) from error
