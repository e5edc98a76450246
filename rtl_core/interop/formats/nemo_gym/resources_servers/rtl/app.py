r"""RTL problems as a NeMo Gym resources server (nemo-gym 0.4.0 was tried).

    export RTL_DISTILL_GRADER_URL=... RTL_DISTILL_GRADER_TOKEN=...      as `rtl-distill serve-grader` prints them
    gym eval run --resources-server rtl --model-type openai_model --model NAME --model-url URL --model-api-key KEY \
        --split validation --output rollouts.jsonl                        in the folder of the export

The text of a response is the answer, and the grading service judges it: 1 where all tests pass. Harness and known-good answer are no part of
the data. Where there is no verdict `/verify` answers 500, and the rollout is an error and no reward.
"""

import asyncio
import os

import aiohttp
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer

MAX_CHARS = 2_000_000
"""The most that the service takes of an answer; what is longer earns nothing."""


class RtlRunRequest(BaseRunRequest):
    """A line of the data: what is asked, and which problem it is."""

    id: str
    fingerprint: str


class RtlVerifyRequest(RtlRunRequest, BaseVerifyRequest):
    pass


class RtlVerifyResponse(BaseVerifyResponse):
    id: str
    outcome: str
    reasons: list[str]


class RtlResourcesServer(SimpleResourcesServer):
    async def verify(self, body: RtlVerifyRequest) -> RtlVerifyResponse:
        """Raises RuntimeError where the service gives no verdict on this problem."""
        text = body.response.output_text
        record = await _record(body.id, text if len(text) <= MAX_CHARS else "")
        if record["graded"]["problem"] != body.fingerprint:
            raise RuntimeError(f"the service has another {body.id}: start it with the sources of the export")
        if record["outcome"] == "infrastructure_error":
            raise RuntimeError(f"grading failed: {'; '.join(record['reasons'])}")
        told = {"outcome": record["outcome"], "reasons": record["reasons"]}
        return RtlVerifyResponse(**body.model_dump(), **told, reward=float(record["passed"]))


async def _record(problem: str, text: str) -> dict:
    """The service's record; waits while the service is busy."""
    url = f"{os.environ['RTL_DISTILL_GRADER_URL']}/v1/grade"
    headers = {"Authorization": f"Bearer {os.environ['RTL_DISTILL_GRADER_TOKEN']}"}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None)) as session:
        while True:
            async with session.post(
                url, headers=headers, json={"answers": [{"id": problem, "response": text}]}
            ) as reply:
                if reply.status == 200:
                    (record,) = (await reply.json())["verdicts"]
                    return record
                if reply.status not in (429, 503):
                    raise RuntimeError(f"the grading service answered {reply.status}: {await reply.text()}")
                await asyncio.sleep(float(reply.headers["Retry-After"]))


if __name__ == "__main__":
    RtlResourcesServer.run_webserver()
