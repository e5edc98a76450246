"""What would tell one tool from another in an honest design is made the same for all, rather than rejected.

Where a harness uses several tools, each must see the same design: conditions on tool macros are decided as Icarus decides
them, and translate_off comments are taken away. Where Icarus is the only one, conditions stay as they are. Tasks that switch
assertions, which Icarus does not have, are left out.
"""

from __future__ import annotations

import re

from rtl_core.grading.vocabulary import TOOL_MACROS

_NEVER = "RTL_NO_TOOL"
"""A macro that nobody defines."""
_MACROS = "|".join(sorted(TOOL_MACROS - {"__ICARUS__"}))
_CONDITION = re.compile(rf"(`(?:ifdef|ifndef|elsif)[ \t]+)(?:{_MACROS})\b")
_ICARUS = re.compile(r"`(ifdef|ifndef)([ \t]+)__ICARUS__\b")
_TRANSLATE_OFF = re.compile(r"((?://|/\*)[ \t]*)(?:synthesis|synopsys|pragma|synth)([ \t]+translate_o(?:ff|n))", re.I)
_ASSERTION_CONTROL = re.compile(
    r"\$assert(?:on|off|kill|control|(?:pass|fail|nonvacuous|vacuous)(?:on|off))\b(\s*\([^()]*\))?\s*;"
)
_SYNTHESIS_OFF = re.compile(r"((?://|/\*)[ \t]*synthesis[ \t]+)(?:off|on)\b", re.I)


def neutralise(text: str, *, several_tools: bool = True) -> str:
    """The text with what tells tools apart made the same for every tool; lines are kept."""
    if several_tools and "`" in text:
        text = _CONDITION.sub(rf"\g<1>{_NEVER}", text)
        text = _ICARUS.sub(lambda m: f"`{'ifndef' if m[1] == 'ifdef' else 'ifdef'}{m[2]}{_NEVER}", text)
    if "$assert" in text:
        # Icarus ignores concurrent assertions and has none of the tasks that switch them.
        text = _ASSERTION_CONTROL.sub(lambda match: ";" + "\n" * match[0].count("\n"), text)
    if re.search("translate_o|synthesis", text, re.I):
        text = _TRANSLATE_OFF.sub(r"\1left-out\2", text)
        text = _SYNTHESIS_OFF.sub(r"\1(left out)", text)
    return text
