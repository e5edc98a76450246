"""An endpoint with OpenAI's protocol that follows a script."""

import json
import time
from contextlib import contextmanager

from rtl_grader.problems.cvdp import problem_from_record
from tests.answering import answering

EXAMPLE = "cvdp_v1.1.0_example_agentic_code_generation_no_commercial_with_solutions.jsonl"
WRONG = "module fixed_priority_arbiter; endmodule\n"


class Scripted:
    """An endpoint. With tools it makes `calls`, one a turn; without it gives a wrong answer."""

    def __init__(self, calls, delay_s=0.0):
        self.calls, self.delay_s, self.asked, self.status = calls, delay_s, [], []

    def reply(self, _method, _path, body):
        asked = json.loads(body)
        self.asked.append(asked)
        time.sleep(self.delay_s)
        status, said = self.status.pop(0) if self.status else (200, self.answer(asked))
        return status, {}, said if isinstance(said, bytes) else json.dumps(said).encode()

    def answer(self, asked):
        turn = sum(message["role"] == "assistant" for message in asked["messages"])
        message = {"role": "assistant", "content": f"```verilog\n{WRONG}```"}
        if asked.get("tools"):
            name, arguments = self.calls[min(turn, len(self.calls) - 1)]
            call = {
                "id": f"c{turn}",
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            message |= {
                "content": None,
                "reasoning_content": f"thought {turn}",
                "tool_calls": [call],
            }
        usage = {"prompt_tokens": 100 + turn, "completion_tokens": 10}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


@contextmanager
def scripted(calls, delay_s=0.0):
    """Serve such an endpoint at its `url`."""
    endpoint = Scripted(calls, delay_s)
    with answering(endpoint.reply) as address:
        endpoint.url = f"{address}/v1"
        yield endpoint


def scripted_calls(cvdp):
    """Calls that write the example's solution, after a first try that does not compile."""
    record = json.loads((cvdp / EXAMPLE).read_text())
    (path, text), *_ = problem_from_record(record, source="cvdp-agentic").golden.items()
    broken, right = (
        json.dumps({"path": path, "content": t}) for t in (text.replace("endmodule", ""), text)
    )
    first, rest = (
        [("list", "{}"), ("write", broken), ("compile", "{}")],
        [("compile", "{}"), ("submit", "{}")],
    )
    return [*first, ("write", right), ("nonsense", "{"), *rest]
