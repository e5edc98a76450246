"""The server under test, and helpers for cases."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import tinker
from tinker import types
from tinker.lib._auth_token_provider import AuthTokenProvider

from localtinker.certify.data import (
    PROMPT,
    SIGNS,
    TEXTS,
    Data,
    Scores,
    Texts,
    datum,
    inputs_of,
    logprobs_of,
    params,
    policy_data,
    prompt,
    scores,
    sequences,
)
from localtinker.client.failures import kind_of
from localtinker.client.session import closed_at_the_end, find_credential
from localtinker.errors import SettingsError
from localtinker.losses import RATIO_MASK

ADAM = types.AdamParams(learning_rate=3e-3, beta1=0.9, beta2=0.95, eps=1e-8)
"""Learning rate ten times that of a run, so that steps have a visible effect."""
TTL_S = 7200
"""Saved weights expire after two hours, in case the examination is interrupted before it deletes them."""
MARKS = {"purpose": "check-service"}
"""Sent as a run sends its marks, so that sessions and training runs in an account can be traced."""

# Prerequisites of many cases.
SAMPLING = ("session", "create_sampling_client")
TRAINING = ("session", "create_lora_training_client")
LEARNING = (*TRAINING, "forward_backward: importance_sampling")
SCORING = (*SAMPLING, "sample", "compute_logprobs")
SAVING = (*LEARNING, "optim_step", "save_weights_for_sampler", "compute_logprobs")


@dataclass
class Server:
    """The server under test, and what cases find out about it."""

    url: str
    api_key: str | None = None
    """None: the one that the SDK finds (TINKER_API_KEY)."""
    student: str | None = None
    """Model to train. None: the first trainable one of `folders`, else of the server's list."""
    folders: Mapping[str, Path] = field(default_factory=dict)
    """Mapping of model to folder, for models to compare with transformers."""
    rank: int = 8
    tolerance: float = 0.02
    """Allowed mean difference of log-probabilities that should be equal, in nats; ten times as much for a
    single one. The default suits bfloat16 with different kernels for sampling and training. With float32
    throughout, differences are about 1e-5."""
    context: int | None = None
    """Maximum sequence length of the student, if the server reports it."""
    token: str = ""
    """Authentication token of requests."""
    saved: set[str] = field(default_factory=set)
    """Paths of weights that cases saved and did not delete."""

    def __post_init__(self) -> None:
        if not self.url.startswith(("http://", "https://")):
            raise SettingsError(f"{self.url!r} is not a URL", "write it as http://HOST:PORT")
        self.url = self.url.rstrip("/")

    @cached_property
    def credential(self) -> tuple[AuthTokenProvider, str]:
        """The key and its source. Raises CredentialError if there is none."""
        return find_credential(self.api_key)

    @property
    def name(self) -> str:
        """The student's name. Set by the case `capabilities`."""
        assert self.student is not None
        return self.student

    async def rest(self) -> tinker.RestClient:
        return await asyncio.to_thread(
            tinker.RestClient, base_url=self.url, api_key=self.api_key
        )


class Bench:
    """A server and a session on it, for one case."""

    service: tinker.ServiceClient
    rest: tinker.RestClient
    """Only for cases that need a session."""

    def __init__(self, server: Server) -> None:
        self.server = server

    @asynccontextmanager
    async def opened(self, *, with_session: bool) -> AsyncIterator[None]:
        url, key = self.server.url, self.server.api_key
        service = tinker.ServiceClient(MARKS, base_url=url, api_key=key)
        async with closed_at_the_end(service) as self.service:
            if with_session:
                await self.session_id()
                self.rest = await self.server.rest()
            yield

    async def session_id(self) -> str:
        """Return the session id. The SDK opens the session on first use, which blocks."""
        holder = await asyncio.to_thread(lambda: self.service.holder)
        return str(holder.get_session_id())

    async def heartbeat(self, session_id: str) -> tuple[int, str]:
        return await self.ask(
            "session_heartbeat", {"session_id": session_id, "type": "session_heartbeat"}
        )

    async def trainer(self) -> tinker.TrainingClient:
        """Open a training client with a new adapter on the student."""
        client: tinker.TrainingClient = await self.service.create_lora_training_client(
            self.server.name, rank=self.server.rank, seed=1, user_metadata=MARKS
        )
        return client

    async def sampler(self, **weights: Any) -> tinker.SamplingClient:
        """Open a sampling client, by `model_path` or `base_model`."""
        client: tinker.SamplingClient = await self.service.create_sampling_client(**weights)
        return client

    async def base_sampler(self) -> tinker.SamplingClient:
        return await self.sampler(base_model=self.server.name)

    async def sample_once(self, **weights: Any) -> None:
        """Open a `sampler`, and draw a token with it."""
        await self.sample(await self.sampler(**weights), 1, 1)

    async def sampler_of(
        self, trainer: tinker.TrainingClient, name: str
    ) -> tinker.SamplingClient:
        """Save sampler weights and open a sampling client on them, as a run does."""
        path = await self.save(trainer.save_weights_for_sampler, name)
        return await self.sampler(model_path=path)

    async def save(self, method: Callable[..., Awaitable[Any]], name: str, **more: Any) -> str:
        """Save weights by a method of a training client. Returns their path."""
        answer = await method(name, **{"ttl_seconds": TTL_S, **more})
        path = str(answer.path)
        assert path.startswith("tinker://"), (
            f"saved weights have the path {path!r}; it must begin with tinker://"
        )
        self.server.saved.add(path)
        return path

    async def save_new(self, name: str, **more: Any) -> str:
        """Save the state of a new training client. Returns its path."""
        method = (await self.trainer()).save_state
        return await self.save(method, name, user_metadata=MARKS, **more)

    async def step(
        self,
        trainer: tinker.TrainingClient,
        data: Data,
        times: int = 1,
        adam: types.AdamParams = ADAM,
    ) -> Scores:
        """Train steps, with both requests of a step in flight as in a run. Returns the trainer's
        log-probabilities before each step."""
        logprobs: Scores = []
        for _ in range(times):
            forward = trainer.forward_backward(data, "importance_sampling")
            output, _ = await asyncio.gather(forward, trainer.optim_step(adam))
            logprobs += logprobs_of(output, data)
        return logprobs

    async def batch(
        self, trainer: tinker.TrainingClient, signs: Sequence[float] = SIGNS
    ) -> Data:
        """Return `policy_data` that the trainer itself could have sampled."""
        texts = sequences(len(signs))
        return policy_data(await self.trainer_logprobs(trainer, texts), signs)

    async def learner(self) -> tuple[tinker.TrainingClient, Data]:
        """Return a training client after two steps, and the data of these steps."""
        trainer = await self.trainer()
        data = await self.batch(trainer)
        await self.step(trainer, data, 2)
        return trainer, data

    async def trainer_logprobs(
        self,
        trainer: tinker.TrainingClient,
        texts: Texts,
        loss: str = "importance_sampling",
    ) -> Scores:
        """Return the trainer's log-probabilities of all tokens but the first, by a pass with inputs of 0,
        whose gradient is 0 (except for `dro`)."""
        data = []
        for text in texts:
            zeros = np.zeros(len(text) - 1)
            inputs = dict.fromkeys(inputs_of(loss), zeros)
            if RATIO_MASK in inputs:
                inputs[RATIO_MASK] = np.ones(len(zeros))
            data.append(datum(text, **inputs))
        return logprobs_of(await trainer.forward_backward(data, loss), data)  # type: ignore[arg-type]

    async def sample(
        self, sampler: tinker.SamplingClient, count: int, max_tokens: int, **shape: Any
    ) -> list[types.SampledSequence]:
        """Draw `count` samples for `PROMPT` with one request."""
        parameters = params(max_tokens, **shape)
        answer = await sampler.sample(prompt(PROMPT), count, parameters)
        samples = list(answer.sequences)
        assert len(samples) == count, f"{len(samples)} samples instead of {count}"
        return samples

    async def score(self, sampler: tinker.SamplingClient, sequences: Texts = TEXTS) -> Scores:
        """Return the sampler's log-probabilities of all tokens but the first, with all requests in flight together."""
        requests = [sampler.compute_logprobs(prompt(tokens)) for tokens in sequences]
        answers = await asyncio.gather(*requests)
        pairs = zip(answers, sequences, strict=True)
        return [scores(answer, len(tokens)) for answer, tokens in pairs]

    async def base_scores(self, sequences: Texts = TEXTS) -> Scores:
        """Return `score` by the base model."""
        return await self.score(await self.base_sampler(), sequences)

    def compare(self, mine: Scores, other: Scores, what: str) -> str:
        """Assert that two lists of log-probabilities are equal within the tolerance. Returns their
        difference in words."""
        same = list(map(len, mine)) == list(map(len, other))
        assert same, f"{what}: different numbers of log-probabilities"
        difference = np.abs(np.concatenate(mine) - np.concatenate(other))
        mean = difference.mean()
        most = difference.max()
        words = f"differ by {mean:.1e} in the mean and {most:.1e} at most"
        limit = self.server.tolerance
        limits = f"(allowed: {limit:g}, {10 * limit:g})"
        close = mean <= limit and most <= 10 * limit
        assert close, f"{what} {words} {limits}"
        return words

    # Requests without the SDK, which retries some and refuses to send others.
    async def ask(self, route: str, body: Any, *, key: str | None = None) -> tuple[int, str]:
        """POST once, bytes as protobuf and anything else as JSON, and wait for the promised result. Returns
        the last HTTP status, and the body or its error.

        Like the SDK, counts a promise that ends in an error of category `user` as 400, and in another error as 500.
        """
        arguments: dict[str, Any] = {"json": body}
        if isinstance(body, bytes):
            headers = {"Content-Type": "application/x-protobuf"}
            arguments = {"content": body, "headers": headers}
        async with self.http(key) as http:
            answer = await http.post(route, **arguments)
            promise = _json(answer).get("request_id")
            while promise is not None and (
                answer.status_code < 300 or answer.status_code == 408
            ):
                answer = await http.post("retrieve_future", json={"request_id": promise})
                content = _json(answer)
                if "error" in content:
                    status = 400 if content.get("category") == "user" else 500
                    return status, str(content["error"])
                if answer.status_code < 300 and content.get("type") != "try_again":
                    break
                await asyncio.sleep(0.05)
        text = " ".join(answer.text.split())
        return answer.status_code, text[:200]

    def http(self, key: str | None = None) -> httpx.AsyncClient:
        headers = {"X-API-Key": self.server.token if key is None else key}
        timeout = httpx.Timeout(60, connect=10)
        return httpx.AsyncClient(
            base_url=f"{self.server.url}/api/v1/", headers=headers, timeout=timeout
        )

    async def demand_refused(self, route: str, bodies: dict[str, Any]) -> str:
        """Assert that every body is answered with a 4xx status."""
        for what, body in bodies.items():
            status, reply = await self.ask(route, body)
            assert status < 500, (
                f"{what}: {status} ({reply}); the SDK retries a 5xx for five minutes, so a run seems to hang"
            )
            assert status >= 400, f"{what}: accepted ({status}) instead of refused"
        return f"{len(bodies)} refused"

    def demand_described(self, what: str, model: str | None, rank: int | None) -> str:
        """Assert that something has the student's name and, if it reports one, the rank of the adapters."""
        server = self.server
        assert model == server.student, (
            f"{what} has the base model {model!r}, not {server.student!r}"
        )
        assert rank in (None, server.rank), f"{what} has the rank {rank}, not {server.rank}"
        return f"{model}, rank {rank}"

    async def demand_no_client(
        self, of: str, openings: Mapping[str, Awaitable[Any]], kinds: Collection[str]
    ) -> None:
        """Assert that opening each client fails with an error of one of the kinds."""
        for what, opening in openings.items():
            try:
                await opening
            except Exception as error:
                if kind_of(error) not in kinds:
                    raise AssertionError(
                        f"{what} of {of}: {type(error).__name__}: {error}"
                    ) from error
            else:
                raise AssertionError(f"{what} of {of} was opened")


def _json(answer: httpx.Response) -> dict[str, Any]:
    try:
        content = answer.json()
    except ValueError:  # protobuf or HTML
        return {}
    return content if isinstance(content, dict) else {}
