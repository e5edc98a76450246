"""An endpoint on loopback that acts as a model, for chats and responses: `python endpoint.py ANSWERS` prints its port.

ANSWERS is JSON: {text of the user's message: responses}; the n-th request with a message gets its n-th response.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

ANSWERS = {
    text: iter(given) for text, given in json.loads(Path(sys.argv[1]).read_text()).items()
}


def text_of(content: object) -> str:
    return (
        content
        if isinstance(content, str)
        else "".join(part.get("text", "") for part in content)
    )


def chat(model: str, text: str) -> dict[str, object]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def response(model: str, text: str) -> dict[str, object]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    empty = {"parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "model": model,
        "output": [message],
        **empty,
    }


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        shown = asked.get("messages") or asked["input"]
        said = next((text_of(m["content"]) for m in reversed(shown) if m["role"] == "user"), "")
        reply = (chat if "messages" in asked else response)(asked["model"], next(ANSWERS[said]))
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
