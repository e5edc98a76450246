r"""RTL problems as a NeMo Gym resources server (tested with nemo-gym 0.4.0).

    export RTL_DISTILL_GRADER_URL=... RTL_DISTILL_GRADER_TOKEN=...      as `rtl-grader serve-grader` prints them
    gym eval run --resources-server rtl --model-type openai_model --model NAME --model-url URL --model-api-key KEY \
        --split validation --output rollouts.jsonl                        in the folder of the export

The text of a response is the answer. The grading service grades it: the reward is 1 if all tests pass. The
data does not include harness and known-good answer. If there is no verdict, `/verify` answers 500, and the
rollout is an error without a reward.
"""

import asyncio
import os

import aiohttp
from nemo_gym.base_resources_server import (
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)

MAX_CHARS = 2_000_000
"""Maximum size of an answer that the service accepts. A longer one gets no reward."""


class RtlRunRequest(BaseRunRequest):
    """A line of the data: prompt and identity of the problem."""

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
        """Raises RuntimeError if the service has no verdict on this problem."""
        text = body.response.output_text
        record = await _record(body.id, text if len(text) <= MAX_CHARS else "")
        if record["graded"]["problem"] != body.fingerprint:
            raise RuntimeError(
                f"the service has another {body.id}: start it with the sources of the export"
            )
        if record["outcome"] == "infrastructure_error":
            raise RuntimeError(f"grading failed: {'; '.join(record['reasons'])}")
        verdict = {"outcome": record["outcome"], "reasons": record["reasons"]}
        return RtlVerifyResponse(**body.model_dump(), **verdict, reward=float(record["passed"]))


async def _record(problem: str, text: str) -> dict:
    """Return the service's record. Waits while the service is busy."""
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
                    raise RuntimeError(
                        f"the grading service answered {reply.status}: {await reply.text()}"
                    )
                await asyncio.sleep(float(reply.headers["Retry-After"]))


if __name__ == "__main__":
    RtlResourcesServer.run_webserver()
