"""Which design a problem is about, and on which side of the split a design stands: all problems of one design stand together.

CVDP asks several things of one IP (specify it, modify it, debug it), as `cvdp_agentic_fixed_arbiter_0001` and `..._0010`, or
`cvdp_copilot_lfsr_0001` and `cvdp_agentic_lfsr_0005`. Held out by problem, a policy is measured on designs that it has trained on.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from rtl_core.types.problem import Problem

_CVDP_ID = re.compile(r"cvdp_[a-z]+_(?P<ip>.+?)_\d{4}(?:_|$)")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_MODULE = re.compile(
    r"^[ \t]*module\s+(?P<name>[A-Za-z_]\w*)\s*(?:import\b[^;]*;\s*)?[#(;].*?\bendmodule\b", re.S | re.M
)
_CONVENTIONS = frozenset({"top", "top_module", "topmodule", "refmodule", "dut", "tb", "testbench"})
_RTL = (".v", ".sv")


@dataclass(frozen=True)
class Design:
    """What a problem is about. Two problems that share the name or a module are of one design."""

    name: str
    """Decides the side by its hash alone, so that a design never changes sides as the set grows."""
    modules: frozenset[str] = frozenset()
    """RTL modules, in lower case, that the problem shows or asks for."""

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of `design NAME`."""
        return hashlib.sha256(f"design {self.name}".encode()).hexdigest()


def held_out(digest: str, fraction: float) -> bool:
    """Whether what has this SHA-256 (hex) is held out, when `fraction` of all is: decided by it alone."""
    return int(digest[:8], 16) / 2**32 < fraction


def cvdp_design(problem: Problem) -> Design:
    """The design of a CVDP problem by its id, `cvdp_KIND_IP_NUMBER`, and by its RTL modules; another id is a design of its own."""
    found = _CVDP_ID.match(problem.id)
    if found is None:
        return Design(problem.id)
    asked = {path.rsplit("/", 1)[-1].rsplit(".", 1)[0] for path in problem.targets if _is_rtl(path)}
    names = {name.lower() for name in asked | {name for name, _ in shown_modules(problem)}}
    return Design(f"cvdp {found['ip'].lower()}", frozenset(names - _CONVENTIONS))


def shown_modules(problem: Problem) -> list[tuple[str, str]]:
    """(name, text without comments) of each RTL module that the model is shown, in the context or in the prompt."""
    texts = [text for path, text in sorted(problem.context.items()) if _is_rtl(path)]
    return [found for text in (*texts, problem.prompt) for found in modules_of(text)]


def modules_of(text: str) -> list[tuple[str, str]]:
    """(name, text without comments) of each module that a text defines."""
    return [(found["name"], found[0]) for found in _MODULE.finditer(_COMMENT.sub(" ", text))]


def _is_rtl(path: str) -> bool:
    """Whether a file of the workspace holds RTL, not a test bench."""
    return path.startswith("rtl/") and path.endswith(_RTL)
