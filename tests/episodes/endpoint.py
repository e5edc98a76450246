"""An endpoint that speaks OpenAI's protocol and answers by a script."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rtl_core.problems.cvdp import problem_from_record

EXAMPLE = "cvdp_v1.1.0_example_agentic_code_generation_no_commercial_with_solutions.jsonl"
WRONG = "module fixed_priority_arbiter; endmodule\n"


class Scripted:
    """An endpoint. With tools it plays `calls`, one a turn; without it answers at once, and wrong."""

    def __init__(self, calls, delay_s=0.0):
        self.calls, self.delay_s, self.asked, self.status = calls, delay_s, [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(asked)
                time.sleep(outer.delay_s)
                status, body = outer.status.pop(0) if outer.status else (200, outer.answer(asked))
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"

    def answer(self, asked):
        turn = sum(message["role"] == "assistant" for message in asked["messages"])
        message = {"role": "assistant", "content": f"```verilog\n{WRONG}```"}
        if asked.get("tools"):
            name, arguments = self.calls[min(turn, len(self.calls) - 1)]
            call = {"id": f"c{turn}", "type": "function", "function": {"name": name, "arguments": arguments}}
            message = {
                "role": "assistant",
                "content": None,
                "reasoning_content": f"thought {turn}",
                "tool_calls": [call],
            }
        return {
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 100 + turn, "completion_tokens": 10},
        }

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()


def scripted_calls(cvdp: Path) -> list[tuple[str, str]]:
    """Calls that write the example's solution, after a first try that does not compile."""
    record: dict[str, Any] = json.loads((cvdp / EXAMPLE).read_text())
    (path, text), *_ = problem_from_record(record, source="cvdp-agentic").golden.items()
    return [
        ("list", "{}"),
        ("write", json.dumps({"path": path, "content": text.replace("endmodule", "")})),
        ("compile", "{}"),
        ("write", json.dumps({"path": path, "content": text})),
        ("nonsense", "{"),
        ("compile", "{}"),
        ("submit", "{}"),
    ]
