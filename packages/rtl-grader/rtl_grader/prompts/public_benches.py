"""The prompts of published scripts, word for word, so that figures are comparable with published ones.

- `verilog-eval`, `verilog-eval-1shot`:
  https://github.com/NVlabs/verilog-eval at commit c498220 (scripts/sv-generate and
  scripts/verilog-example-prefix_spec-to-rtl_1-shot.txt), Copyright (c) 2023-2024 NVIDIA Research Projects, MIT.
- `rtl-benchls`: https://github.com/SebastianWANG2024/RTL-BenchLS at commit 5a8d15a (rtlbenchls/runner.py), MIT, without
  its model's description of what is masked.
- `published`: the sets themselves. RTLLM gives a model its description alone; NotSoTiny's rows hold both messages.

Their mistakes are part of them.
"""

from __future__ import annotations

from rtl_grader.errors import ConfigError
from rtl_grader.prompts import TEMPLATES, Messages, with_context
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem

VERILOG_EVAL_SYSTEM = (
    "\nYou are a Verilog RTL designer that only writes code using correct Verilog syntax.\n"
)
VERILOG_EVAL_SHAPE = """
Enclose your code with [BEGIN] and [DONE]. Only output the code snippet
and do NOT output anything else.

Answer:
"""
VERILOG_EVAL_SHOT = f"""\
Question:
Implement a hardware module named TopModule with the following interface.
All input and output ports are one bit unless otherwise specified.

 - input  in_ (8 bits)
 - output out (8 bits)

The module should implement an incrementer which increments the input by
one and writes the result to the output. Assume all values are encoded as
two's complement binary numbers.
{VERILOG_EVAL_SHAPE}[BEGIN]
module TopModule
(
  input  logic [7:0] in_,
  output logic [7:0] out
);

  // Combinational logic

  assign out = in_ + 1;

endmodule
[DONE]
"""
BENCHLS_SYSTEM = (
    "You are an expert Verilog designer. Generate ONLY the Verilog RTL code for the masked region. Preserve all "
    "signal names from the surrounding context. No explanation, no markdown formatting."
)
BENCHLS_USER = """\
The following Verilog design has a [MASKED] region.

```verilog
{masked}
```

Generate ONLY the Verilog code that should replace [MASKED]."""


@TEMPLATES.register("verilog-eval")
def verilog_eval(problem: Problem, context: Files) -> Messages:
    """The prompt of VerilogEval v2 for specification to RTL, without examples, word for word."""
    return _verilog_eval(problem, context, "")


@TEMPLATES.register("verilog-eval-1shot")
def verilog_eval_1shot(problem: Problem, context: Files) -> Messages:
    """The prompt of VerilogEval v2 for specification to RTL, with its one example, word for word."""
    return _verilog_eval(problem, context, VERILOG_EVAL_SHOT)


def _verilog_eval(problem: Problem, context: Files, examples: str) -> Messages:
    specification = with_context(problem.prompt.strip(), context)
    question = f"{examples}\nQuestion:\n{specification}\n{VERILOG_EVAL_SHAPE}"
    return _messages(VERILOG_EVAL_SYSTEM, question)


@TEMPLATES.register("published")
def published(problem: Problem, context: Files) -> Messages:
    """The request as its set publishes it, with the set's system message if there is one and nothing added."""
    request = problem.request or with_context(problem.prompt.strip(), context)
    return _messages(problem.system, request)


@TEMPLATES.register("rtl-benchls")
def rtl_benchls(problem: Problem, context: Files) -> Messages:
    """The prompt of RTL-BenchLS for a masked part, word for word but for the description of the part."""
    masked = "\n".join(problem.frame.values())
    if not masked:
        raise ConfigError(
            f"template rtl-benchls: nothing is masked in {problem.id}",
            "give problems with `[MASKED]`, such as those of the source `rtl`",
        )
    files = with_context("", context)
    return _messages(BENCHLS_SYSTEM, BENCHLS_USER.format(masked=masked) + files)


def _messages(system: str | None, user: str) -> Messages:
    messages = [{"role": "system", "content": system or ""}, {"role": "user", "content": user}]
    return messages if system else messages[1:]
