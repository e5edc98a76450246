"""A verifiers harness that calls the model once, without a separate program: `--env.agent.harness.id direct`.

The harnesses of verifiers run programs installed by `uv`, which the test of a taskset does not need.
"""

import httpx
import verifiers.v1 as vf


class Direct(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None
    ) -> vf.ProgramResult:
        system, prompt = self.resolve_prompt(data)
        asked = [{"role": "system", "content": system}, {"role": "user", "content": prompt}]
        async with httpx.AsyncClient(timeout=None) as client:
            reply = await client.post(
                f"{endpoint}/chat/completions",
                json={"model": ctx.model, "messages": asked},
                headers={"Authorization": f"Bearer {secret}"},
            )
        return vf.ProgramResult(0 if reply.is_success else 1, reply.text, "")


__all__ = ["Direct"]
