"""The design that a problem is about. All problems of one design are on the same side of the train/held-out split.

CVDP asks several things about one IP (specify it, modify it, debug it), as in
`cvdp_agentic_fixed_arbiter_0001` and `..._0010`. A split by problem would evaluate a policy on designs that
it was trained on.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from posixpath import basename

from rtl_grader.hdl.text import code_of, modules
from rtl_grader.types.problem import Difficulty, Problem

_CVDP_ID = re.compile(r"cvdp_[a-z]+_(?P<ip>.+?)_\d{4}(?:_|$)")
_HEAD = re.compile(r"\w+\s+(?:automatic\s+|static\s+)?[\w$]+\s*(?:[#(;]|import\b)", re.A)
"""How a module begins in code, and hardly ever in prose about modules."""
_TOKEN = re.compile(r"[\w$']+|[<>=!&|~^*+-]+|[^\w\s]")
_CONVENTIONS = frozenset(
    {"top", "top_module", "topmodule", "refmodule", "dut", "tb", "testbench"}
)


@dataclass(frozen=True)
class Design:
    """The design of a problem. Two problems with the same name or a common module have the same design."""

    name: str
    """Its hash decides the side, so a design of a set that holds some out never changes sides as the set grows."""
    modules: frozenset[str] = frozenset()
    """RTL modules, in lower case, that the problem shows or asks for."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `design NAME`."""
        return hashlib.sha256(f"design {self.name}".encode()).hexdigest()


def held_out(digest: str, fraction: float) -> bool:
    """Whether this SHA-256 (hex) belongs to the held-out `fraction`."""
    return int(digest[:8], 16) / 2**32 < fraction


def cvdp_design(problem: Problem) -> Design:
    """Design of a CVDP problem, from its id `cvdp_KIND_IP_NUMBER` and its RTL modules; any other id is a
    design of its own."""
    id_parts = _CVDP_ID.match(problem.id)
    if id_parts is None:
        return Design(problem.id)
    files = [basename(path) for path in problem.targets if is_rtl(path)]
    names = [file.rsplit(".", 1)[0] for file in files]
    names += [name for name, _ in shown_modules(problem)]
    own_names = set(map(str.lower, names)) - _CONVENTIONS
    return Design(f"cvdp {id_parts['ip'].lower()}", frozenset(own_names))


def shown_modules(problem: Problem) -> list[tuple[str, str]]:
    """(name, code) of each RTL module in the context or the prompt, see `modules_of`."""
    result = []
    for path, text in sorted(problem.context.items()):
        if is_rtl(path):
            result += modules_of(text)
    return result + modules_of(problem.prompt)


def modules_of(text: str) -> list[tuple[str, str]]:
    """(name, code without comments and string contents) of each whole module in a text, perhaps prose with code."""
    if "endmodule" not in text:
        return []
    code = code_of(text)
    return [
        (module.name, code[module.start : module.end])
        for module in modules(code)
        if module.name and module.closed and _HEAD.match(code, module.start)
    ]


def is_rtl(path: str) -> bool:
    """Whether a file of the workspace is a design."""
    return path.startswith("rtl/") and path.endswith((".v", ".sv"))


def difficulty_of(golden: str) -> Difficulty:
    """Estimate the difficulty from the number of tokens of the golden answer, for sets that state none."""
    count = len(_TOKEN.findall(code_of(golden)))
    if count < 80:
        return "easy"
    return "medium" if count < 220 else "hard"
