"""Keeps a design apart from the Verilog test bench that a harness runs beside it. Standard library only.

Such a harness judges by what the simulator prints and by its exit code, and a design can print and end a simulation like a bench.
So the compiled program is rewritten: the design's tasks that print or end are left out, and a bench that comes to its end creates files
whose names no design can know. Without them, something else ended the simulation.

Not covered: what a design does through its ports.
"""

import os
import re
from collections import namedtuple

import compiled

_RESULTS = frozenset(["readmemh", "readmemb", "sformat", "swrite", "swriteb", "swriteo", "swriteh"])
"""The tasks that a design may need."""
_TASK = re.compile(rf'%vpi_call\S* \d+ \d+ "\$(\w+)"(?:, (?:{compiled.STRING}|(\w+)))?.* {{(\d+) (\d+) (\d+)}};')
_INSTRUCTION = re.compile(r"%\S+ [^\n]*")
_END = re.compile(r'(?=%vpi_call\S* \d+ \d+ "\$(?:finish|stop|fatal)")')
_LAST = re.compile(r"(?<=\n)(?!    %jmp )([^\n]*\n)(?=    %end;\n    \.thread \w+(?:, \$init)?;)")
"""The last statement of a thread that is not an endless loop."""
_FILE = re.compile(r'^ +"([^"\n]*)";$', re.M)
_MARK = '    %vpi_func 0 0 "$fopen" 32, "{}", "w" {{0 0 0}};\n    %pop/vec4 1;\n    '
_OURS = ("/code/", "/src/")

Separated = namedtuple("Separated", "text marks design reaches")
"""The rewritten program, the files that its bench creates, the design's part of the program, and whether that refers to the bench."""


def separate(program, names, mark):
    """Separate a program by the names of the bench's modules and packages; None if it has no root of such a name.

    `mark` begins the paths of the files that the bench creates.
    """
    bench, labels, unit = _sorted(program, names)
    if not bench:
        return None
    pieces = compiled.pieces(program)
    ends = _END if any(label in bench and _END.search(text) for _, label, text in pieces) else _LAST
    texts = {p.label: p.value.strip('"') for p in compiled.parameters(program) if p.kind == "str"}
    marks, design, reaches = [], [], False

    def marked(match):
        marks.append(mark if ends is _END else f"{mark}.{len(marks)}")
        return match[0] + _MARK.format(marks[-1])

    def without_output(match):
        task, file, label, *stacks = match.groups()
        file = texts.get(label, "") if file is None else file
        if task in _RESULTS and (task[0] == "s" or os.path.isfile(file)):
            return match[0]
        pops = [f"%pop/{kind} {n};" for kind, n in zip(("vec4", "real", "str"), stacks, strict=True) if n != "0"]
        return "\n    ".join(pops) or "%noop;"

    written = [program[: program.find(pieces[0][0])]]
    for head, label, text in pieces:
        if label in bench:
            text = ends.sub(marked, text)
        else:
            design.append(text)
            reaches |= not labels.isdisjoint(compiled.LABEL.findall(" ".join(_INSTRUCTION.findall(text))))
            silent = _TASK.sub(without_output, text)
            # Tasks outside modules may be the bench's.
            reaches |= label in unit and silent != text
            text = silent
        written += [head, text]
    code, table, files = "".join(written).rpartition("\n:file_names ")
    return Separated(code + table + _FILE.sub(_known, files), marks, "".join(design), reaches)


def _sorted(program, names):
    """Labels of (the bench's scopes, everything in them, scopes outside modules)."""
    bench, labels, unit = set(), set(), set()
    for scope in compiled.scopes(program):
        inside = scope.parent is None or scope.parent in bench
        if inside and (scope.type in names if scope.kind in ("module", "package") else scope.parent):
            bench.add(scope.label)
            labels.update([scope.label, *compiled.DECLARED.findall(scope.text)])
        elif scope.type == "$unit" or scope.parent in unit:
            unit.add(scope.label)
    return bench, labels, unit


def _known(match):
    """A source file's name as messages show it; a design can name any with `line."""
    ours = os.path.isfile(match[1]) and os.path.realpath(match[1]).startswith(_OURS)
    return match[0] if ours else match[0].replace(match[1], "?")
