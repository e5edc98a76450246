"""The prompt of CVDP's public runner, word for word, so that figures are comparable with published ones.

The text is that of https://github.com/NVlabs/cvdp_benchmark (src/dataset_processor.py,
src/model_helpers.py), Copyright 2025 NVIDIA CORPORATION & AFFILIATES, Apache-2.0: `SYSTEM`, `GUIDANCE`,
`SCHEMA` and the sentences in `cvdp`. Its mistakes are part of it. An agentic problem is prompted as with
that runner's `--force-copilot`: its own system message is left out.
"""

from __future__ import annotations

from rtl_grader.prompts import TEMPLATES, Messages
from rtl_grader.types.files import Files
from rtl_grader.types.problem import Problem

SYSTEM = """You are a helpful assistance.
Consider that you have a folder structure like the following:\n
    - rtl/*   : Contains files which are RTL code.
    - verif/* : Contains files which are used to verify the correctness of the RTL code.
    - docs/*  : Contains files used to document the project, like Block Guides, RTL Plans and Verification Plans.

When generating files, return the file name in the correct place at the folder structure.
"""
GUIDANCE = {
    "cid002": (
        "You are solving an 'RTL Code Completion' problem. To solve this problem correctly, "
        "you should only respond with the RTL code generated according to the requirements."
    ),
    "cid003": (
        "You are solving a 'Specification to RTL Translation' problem. To solve this problem "
        "correctly, you should only respond with the RTL code translated from the "
        "specification."
    ),
    "cid004": (
        "You are solving an 'RTL Code Modification' problem. To solve this problem "
        "correctly, you should only respond with the modified RTL code according to the "
        "requirements."
    ),
    "cid005": (
        "You are solving a 'Specification to RTL Translation: Module Instantiation and "
        "Component Reuse' problem. To solve this problem correctly, you should only respond "
        "with the RTL code translated from the specification and with proper module "
        "instantiation and component reuse."
    ),
    "cid007": (
        "You are solving an 'RTL Lint Improvement or Power-Performance Optimization' "
        "problem. To solve this problem correctly, you should only respond with improved RTL "
        "code to address lint issues or optimize for power/performance."
    ),
    "cid016": (
        "You are solving an 'RTL Debugging and Bug Fixing' problem. To solve this problem "
        "correctly, you should only respond with the RTL code that is debugged and fixed to "
        "address the bug."
    ),
}
SCHEMA = (
    "\n"
    "Provide the response in one of the following JSON schemas: \n"
    '{ "code": [{ "<name>" : "<code>"}] }\n'
    "or\n"
    '{ "response": "<response>" }\n'
    "The response should be in JSON format, including double-quotes around keys and "
    "values, and proper escaping of quotes within values, and escaping of newlines."
)


@TEMPLATES.register("cvdp")
def cvdp(problem: Problem, context: Files) -> Messages:
    """The prompt of CVDP's public runner, word for word, for figures that are comparable with published ones."""
    system = SYSTEM
    if problem.category in GUIDANCE:
        system += f"\n{GUIDANCE[problem.category]}\n"
    user = ""
    for path, text in context.items():
        user += f"\nConsider the following content for the file {path}:\n```\n{text}\n```"
    user += f"\nProvide me one answer for this request: {problem.prompt}\n"
    if len(problem.targets) == 1:
        user += (
            "Please provide your response as plain text without any JSON formatting. "
            f"Your response will be saved directly to: {problem.targets[0]}.\n"
        )
    else:
        system += SCHEMA
        user += f"Name the files as: {list(problem.targets)}.\n"
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]
