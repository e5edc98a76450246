"""Keeps a design apart from the Verilog test bench that a harness runs beside it. Standard library only.

Such a harness judges by what the simulator prints and by its exit code, and a design can print and end a simulation like a bench.
So the compiled program is rewritten: the design's tasks that print or end are left out, and a bench that comes to its end creates files
whose names no design can know. Without them, something else ended the simulation.

Not covered: what a design does through its ports.
"""

import os
import re

import compiled

_RESULTS = frozenset(["readmemh", "readmemb", "sformat", "swrite", "swriteb", "swriteo", "swriteh"])
"""The tasks that a design may need."""
_TASK = re.compile(r'%vpi_call\S* \d+ \d+ "\$(\w+)".* {(\d+) (\d+) (\d+)};')
_INSTRUCTION = re.compile(r"%\S+ [^\n]*")
_END = re.compile(r'(?=%vpi_call\S* \d+ \d+ "\$(?:finish|stop|fatal)")')
_LAST = re.compile(r"(?<=\n)(?!    %jmp )([^\n]*\n)(?=    %end;\n    \.thread \w+(?:, \$init)?;)")
"""The last statement of a thread that is not an endless loop."""
_FILE = re.compile(r'^( +)"([^"\n]*)";$', re.M)
_MARK = '    %vpi_func 0 0 "$fopen" 32, "{}", "w" {{0 0 0}};\n    %pop/vec4 1;\n    '


def separate(program, names, mark):
    """Return (rewritten program, files that its bench creates, the design's part, complaints about it); None without a bench.

    `names` are those of the bench's modules; `mark` begins the paths of the files.
    """
    bench, labels, outside = _sorted(program, names)
    if not bench:
        return None
    pieces = compiled.pieces(program)
    ends = _END if any(label in bench and _END.search(text) for _, label, text in pieces) else _LAST
    marks, design, complaints = [], [], []

    def marked(match):
        marks.append(mark if ends is _END else f"{mark}.{len(marks)}")
        return match[0] + _MARK.format(marks[-1])

    written = [program[: program.find(pieces[0][0])]]
    for head, label, text in pieces:
        written += [head, ends.sub(marked, text) if label in bench else _TASK.sub(_without_output, text)]
        if label not in bench:
            design.append(text)
            if not labels.isdisjoint(compiled.LABEL.findall(" ".join(_INSTRUCTION.findall(text)))):
                complaints.append("a name that leads into the test bench")
            # A task outside modules may be the bench's, so it stays.
            if label in outside and written[-1] != text:
                complaints.append("a task outside the modules prints or ends the simulation")
    code, table, files = "".join(written).rpartition("\n:file_names ")
    return code + table + _FILE.sub(_existing, files), marks, "".join(design), complaints


def _sorted(program, names):
    """Labels of (the bench's scopes, everything in them, scopes outside modules)."""
    bench, labels, outside = set(), set(), set()
    for scope in compiled.scopes(program):
        inside = scope.type in names if scope.kind == "module" else scope.parent
        if inside and (not scope.parent or scope.parent in bench):
            bench.add(scope.label)
            labels.update([scope.label, *compiled.DECLARED.findall(scope.text)])
        elif scope.kind == "package" or scope.parent in outside:
            outside.add(scope.label)
    return bench, labels, outside


def _without_output(match):
    if match[1] in _RESULTS:
        return match[0]
    pops = [
        f"%pop/{kind} {n};" for kind, n in zip(("vec4", "real", "str"), match.groups()[1:], strict=True) if n != "0"
    ]
    return "\n    ".join(pops) or "%noop;"


def _existing(match):
    """A source file's name as messages show it: `line can make any text one."""
    return match[0] if os.path.isfile(match[2]) else f'{match[1]}"?";'
