"""A person as the policy, on a terminal or a pipe, with the same tools, limits and results as a model."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any, TextIO

from rtl_core.episodes.episode import Messages, Reply
from rtl_core.episodes.tools import TOOLS
from rtl_core.prompting.calls import Call
from rtl_grader.words import visible

HELP = """\
A line is a call: the tool's name and its arguments in order, or as name=value.
  @FILE as an argument is that file's text; << is what follows, up to a line with a dot alone.
  help TOOL explains a tool; end (or Ctrl-D) ends without another call."""


class ByHand:
    """Reads calls from `source`, one a turn, and prints what a model would read."""

    def __init__(self, source: TextIO = sys.stdin, output: TextIO = sys.stdout) -> None:
        self.source, self.output = source, output
        self._printed = 0
        """Number of messages that were printed."""

    def reply(self, messages: Messages, tools: Messages, most_tokens: int) -> Reply:
        """The person's next call; none at the end of the input."""
        for message in messages[self._printed :]:
            if message["role"] != "assistant":
                self._print(f"[{message['role']}] {message['content']}\n")
        if not self._printed:
            self._print(HELP)
        self._printed = len(messages)
        offered = {tool["function"]["name"]: tool["function"] for tool in tools}
        while True:
            self._print("> ", end="")
            line = self.source.readline()
            words = line.split()
            if not line or words == ["end"]:
                return Reply("")
            if words[:1] == ["help"]:
                names = [name for name in words[1:] or offered if name in offered]
                self._print("\n".join(_explain(offered[name]) for name in names))
            elif words:
                try:
                    name, arguments = self._call(line)
                except (ValueError, OSError) as error:
                    self._print(f"not a call: {error}")
                    continue
                return Reply("", (Call(name, arguments, f"call_{len(messages)}"),))

    def _call(self, line: str) -> tuple[str, str]:
        """Name and arguments in a line. ValueError or OSError if it cannot be read."""
        name, *words = shlex.split(line)
        if name not in TOOLS:
            return name, "{}"
        names = list(TOOLS[name].model_fields)
        arguments: dict[str, Any] = {}
        for word in words:
            key, is_named, value = word.partition("=")
            if not is_named or key not in names:
                free = [other for other in names if other not in arguments]
                if not free:
                    takes = ", ".join(names) or "no argument"
                    raise ValueError(f"{name} takes {takes}; `help {name}` explains it")
                key, value = free[0], word
            arguments[key] = self._value(value)
        return name, json.dumps(arguments)

    def _value(self, word: str) -> str:
        if word == "<<":
            lines: list[str] = []
            while (line := self.source.readline()) and line != ".\n":
                lines.append(line)
            return "".join(lines)
        return Path(word[1:]).read_text() if word.startswith("@") else word

    def _print(self, text: str, end: str = "\n") -> None:
        print(visible(text), end=end, file=self.output, flush=True)


def _explain(tool: dict[str, Any]) -> str:
    parameters = tool["parameters"]
    lines = [f"{tool['name']}: {tool['description']}"]
    for name, schema in parameters["properties"].items():
        kind = schema.get("type", "text")
        if name not in parameters["required"]:
            kind += ", may be left out"
        lines.append(f"    {name} ({kind}) {schema.get('description', '')}".rstrip())
    return "\n".join(lines)
