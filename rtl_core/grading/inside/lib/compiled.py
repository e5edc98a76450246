"""What a compiled Icarus program (a `vvp` file) may do, read from the program itself. Standard library only.

No reading of Verilog text can be trusted to be the simulator's: preprocessors differ in macros, escapes and white space.
The compiled program has none of these. Every system task that it can ever call stands in it by name, so a list of what is
allowed is complete: what is not on the list is never run. `refusals` is asked before any simulation starts.

Not covered: what a design does through its ports and within its own modules.
"""

import posixpath
import re

ALLOWED_TASKS = frozenset(
    """
    display displayb displayo displayh write writeb writeo writeh strobe strobeb strobeo strobeh
    monitor monitorb monitoro monitorh monitoron monitoroff error warning info fatal finish stop fflush
    time stime realtime simtime timeformat printtimescale timescale
    random urandom urandom_range dist_uniform dist_normal dist_exponential dist_poisson dist_chi_square dist_t dist_erlang
    signed unsigned clog2 bits countones countbits onehot onehot0 isunknown typename cast
    size left right low high increment dimensions unpacked_dimensions isunbounded
    past rose fell stable changed sampled past_gclk
    asserton assertoff assertkill assertcontrol assertpasson assertpassoff assertfailon assertfailoff
    assertnonvacuouson assertvacuousoff
    ln log log10 exp sqrt pow floor ceil sin cos tan asin acos atan atan2 hypot sinh cosh tanh asinh acosh atanh
    abs min max rtoi itor realtobits bitstoreal shortrealtobits bitstoshortreal
    sformat sformatf swrite swriteb swriteo swriteh sscanf
    readmemh readmemb dumpfile dumpvars dumpon dumpoff dumpall dumplimit dumpflush
    """.split()
)
"""Without the dollar sign. They compute, print to the simulator's output, end the simulation, or read and write a file that
`refusals` looks at by name. All others reach files, the command line, other scopes' signals or the simulator itself."""

WAVES = re.compile(r"(?:/code/rundir/)?(?:[\w-]+/)*[\w.-]{1,100}\.(?:vcd|fst|lxt|lxt2|vpd|fsdb|wlf)")
"""Names of wave files that a design may write: in the run directory, by their ending."""
REFUSED = 99
"""The exit code of a simulator that was not started."""

_STRING = r'"((?:[^"\\\n]|\\.)*)"'
_CALL = re.compile(rf"(?:%vpi_(?:call|func)|\.sfunc)\S*\s+(\d+)\s+(\d+)\s+{_STRING}(?:\s*,\s*(?:{_STRING}|([^\s,;{{]+)))?")
_CALL_WORD = re.compile(r"%vpi_(?:call|func)|\.sfunc")
_FORCE = re.compile(r"%force/|%release/")
_LIBRARY = re.compile(r"^:vpi_module ", re.M)
_TEXT_PARAMETER = re.compile(rf"^(P_\w+) \.param/str {_STRING} [^,\n]*, {_STRING};", re.M)
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_PARAMETER = re.compile(rf"^P_\w+ \.param/(\w+) {_STRING} [^,\n]*, (.*);", re.M)
_NAMED = re.compile(rf"^\s*\w+ \.(?:net|var|array)\S* {_STRING}", re.M)
_SCOPE = re.compile(rf"^S_\w+ \.scope (\w+), {_STRING} {_STRING} \d+ \d+(.*);", re.M)
_NUMBER = re.compile(r"(\+?)C4<([01xz]*)>")


def refusals(program, more=frozenset(), harness=frozenset()):
    """Why the text of a compiled program must not be run; empty when it may.

    `more` are further allowed tasks (what the problem's own files use), `harness` the base names of the harness' files,
    which no memory may be loaded from.
    """
    found = []
    calls = list(_CALL.finditer(program))
    # A name that breaks out of its quotes could bring instructions of its own; all must be of the form that is known.
    if len(calls) != len(_CALL_WORD.findall(program)):
        found.append("the compiled design holds a call that cannot be read")
    header = program.partition("\nS_")[0]
    if program.count(":vpi_module") != len(_LIBRARY.findall(header)):
        found.append("the compiled design loads a library")
    if _FORCE.search(program) and "force" not in more:
        found.append("a `force`")
    names = _file_names(program)
    texts = {label: value for label, _, value in _TEXT_PARAMETER.findall(program)}
    for call in calls:
        number, line, task, text, other = call.groups()
        place = f"{names.get(int(number), 'the design')}:{line}: "
        name = task.lstrip("$")
        if name not in ALLOWED_TASKS and name not in more:
            found.append(f"{place}the system task ${name[:60]}")
        elif name in ("dumpfile", "readmemh", "readmemb"):
            text = texts.get(other) if text is None else text
            complaint = _file_name(name, text, harness) if other is not None or text is not None else None
            if complaint and name not in more:
                found.append(place + complaint)
    return list(dict.fromkeys(found))


def _file_name(task, text, harness):
    """What is wrong with a task's file name, the first argument; None when nothing is."""
    if text is None:
        return f"${task} of a file whose name is not a constant"
    path = _ESCAPE.sub(lambda match: chr(int(match[1], 8)) if len(match[1]) == 3 else match[1], text)
    if task == "dumpfile":
        return None if WAVES.fullmatch(path) else f"a $dumpfile that is no plain wave file ({path[:60]})"
    if not path:
        return None
    full = posixpath.normpath(posixpath.join("/code/rundir/sim_build", path))
    inside = full.startswith("/code/") and not full.startswith("/code/src/")
    if not inside or posixpath.basename(full) in harness:
        return f"${task} of a file that was not given ({path[:60]})"
    return None


def _file_names(program):
    """Index -> base name, from the table at the program's end."""
    _, _, table = program.rpartition("\n:file_names ")
    return {n: posixpath.basename(line.strip().rstrip(";").strip('"')) for n, line in enumerate(table.split("\n")[1:])}


def changed_parameters(program, top, settings):
    """Parameters that the runner set and that did not arrive: [(name, what was set, what is there)].

    `settings` maps names to texts, as after `-P top.`. A name that the top level does not have at all is left alone; a
    variable or net of that name is not, since a test bench would read it in the parameter's place.
    """
    own = _scope(program, top)
    if own is None:
        return []
    parameters = {name: (kind, value) for kind, name, value in _PARAMETER.findall(own)}
    others = set(_NAMED.findall(own))
    found = []
    for name, wanted in settings.items():
        if name in parameters:
            kind, value = parameters[name]
            if not _arrived(wanted, kind, value):
                found.append((name, wanted, _readable(value)))
        elif name in others:
            found.append((name, wanted, "no parameter"))
    return found


def _scope(program, top):
    """The text of the root scope of module `top`, up to the next scope."""
    for match in _SCOPE.finditer(program):
        if match[1] == "module" and match[2] == top and "S_" not in match[4]:
            following = re.compile(r"^S_\w+ \.scope ", re.M).search(program, match.end())
            return program[match.end() : following.start() if following else len(program)]
    return None


def _arrived(wanted, kind, value):
    number = _NUMBER.fullmatch(value)
    if number is None:
        return kind != "str" or wanted.strip().strip('"') == value.strip('"')
    try:
        set_to = int(wanted)
    except ValueError:
        return True
    bits = number[2]
    if set(bits) - {"0", "1"} or not bits:
        return False
    width = len(bits)
    return -(1 << (width - 1)) <= set_to < (1 << width) and (set_to - int(bits, 2)) % (1 << width) == 0


def _readable(value):
    number = _NUMBER.fullmatch(value)
    if number is None or set(number[2]) - {"0", "1"} or not number[2]:
        return value[:60]
    bits = number[2]
    signed = number[1] and bits[0] == "1" and len(bits) > 1
    return str(int(bits, 2) - ((1 << len(bits)) if signed else 0))
