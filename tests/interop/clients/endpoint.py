"""A chat endpoint on loopback that plays a model: `python endpoint.py ANSWERS` prints its port.

ANSWERS is JSON: {text of the user's message: responses}; the n-th request with a message gets its n-th response.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

ANSWERS = {text: iter(given) for text, given in json.loads(Path(sys.argv[1]).read_text()).items()}


def text_of(content: object) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)  # type: ignore[attr-defined]


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        said = next((text_of(m["content"]) for m in reversed(asked["messages"]) if m["role"] == "user"), "")
        reply = {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 0,
            "model": asked["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": next(ANSWERS[said])},
                }
            ],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        }
        body = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return


server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
