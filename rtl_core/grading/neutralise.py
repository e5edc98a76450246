"""What would tell one tool from another in an honest design is made the same for all, rather than rejected.

`SYNTHESIS` guards and translate_off comments: the simulator sees what CVDP's would, and a synthesiser sees it too.
"""

from __future__ import annotations

import re

_SYNTHESIS_GUARD = re.compile(r"(`(?:ifdef|ifndef|elsif)[ \t]+)SYNTHESIS\b")
_TRANSLATE_OFF = re.compile(r"((?://|/\*)[ \t]*)(?:synthesis|synopsys|pragma|synth)([ \t]+translate_o(?:ff|n))", re.I)
_SYNTHESIS_OFF = re.compile(r"((?://|/\*)[ \t]*synthesis[ \t]+)(?:off|on)\b", re.I)


def neutralise(text: str) -> str:
    """The text with `SYNTHESIS` guards and translate_off comments made the same for every tool; lines are kept."""
    if "SYNTHESIS" in text:
        text = _SYNTHESIS_GUARD.sub(r"\1RTL_NO_TOOL", text)
    if re.search("translate_o|synthesis", text, re.I):
        text = _TRANSLATE_OFF.sub(r"\1left-out\2", text)
        text = _SYNTHESIS_OFF.sub(r"\1(left out)", text)
    return text
