"""Small designs as a pairs file, and a server with OpenAI's protocol whose models are functions."""

import json
from contextlib import contextmanager

from tests.answering import answering

INNER = "inner_tally"
DESIGNS = {
    name: f"""\
module {name} #(parameter START = {number})(
  input clk, input rst, input [3:0] step_i, output reg [7:0] sum_o);
  reg [7:0] {INNER};
  always @* {INNER} = sum_o {operation} step_i;
  always @(posedge clk) sum_o <= rst ? START : {INNER};
endmodule
"""
    for number, (name, operation) in enumerate(
        {"adding": "+", "taking": "-", "mixing": "^", "joining": "|"}.items()
    )
}


def specification(name):
    return f"Module {name}: ports clk, rst, step_i, sum_o, parameter START; it is about {name}."


def write_pairs(path, designs):
    rows = [
        {"id": name, "specification": specification(name), "golden": text, "top": name}
        for name, text in designs.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@contextmanager
def served(answer):
    """Yield the URL of a server whose model `answer(model, all words of the request)` gives the text."""

    def reply(_method, _path, body):
        asked = json.loads(body)
        words = "\n".join(message["content"] for message in asked["messages"])
        message = {"role": "assistant", "content": answer(asked["model"], words)}
        choice = {"message": message, "finish_reason": "stop"}
        return 200, {}, json.dumps({"choices": [choice], "usage": {}}).encode()

    with answering(reply) as url:
        yield f"{url}/v1"
