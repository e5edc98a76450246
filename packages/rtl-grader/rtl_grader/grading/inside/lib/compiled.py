"""Reads compiled Icarus programs (`vvp` files) and decides whether they may be run. Standard library only.

Other parsers may read Verilog text differently than the simulator: preprocessors differ in macros, escapes
and white space. The compiled program has none of these. It names every system task that it can call, so an
allow-list is complete: tasks not on the list are never run. `refusals` is called before any simulation
starts.

Not covered: what a design does through its ports and within its own modules.
"""

import posixpath
import re
from collections import namedtuple
from itertools import zip_longest

_ALLOWED = """
display displayb displayo displayh write writeb writeo writeh strobe strobeb strobeo strobeh monitor monitorb
monitoro monitorh monitoron monitoroff error warning info fatal finish stop fflush time stime realtime simtime
timeformat printtimescale timescale random urandom urandom_range dist_uniform dist_normal dist_exponential
dist_poisson dist_chi_square dist_t dist_erlang signed unsigned clog2 bits countones countbits onehot onehot0
isunknown typename cast size left right low high increment dimensions unpacked_dimensions isunbounded past rose
fell stable changed sampled past_gclk asserton assertoff assertkill assertcontrol assertpasson assertpassoff
assertfailon assertfailoff assertnonvacuouson assertvacuousoff ln log log10 exp sqrt pow floor ceil sin cos tan
asin acos atan atan2 hypot sinh cosh tanh asinh acosh atanh abs min max rtoi itor realtobits bitstoreal
shortrealtobits bitstoshortreal sformat sformatf swrite swriteb swriteo swriteh sscanf readmemh readmemb dumpfile
dumpvars dumpon dumpoff dumpall dumplimit dumpflush
"""
ALLOWED_TASKS = frozenset(_ALLOWED.split())
"""Without the dollar sign. They compute, print to the simulator's output, end the simulation, or access a
file whose name `refusals` checks. All other tasks access files, the command line, other scopes' signals or
the simulator itself."""

_METHOD = re.compile(r"ivl_(?:enum|string|queue|darray)_method\$\w+")
"""Icarus' names of methods such as `state.next()`, which only compute."""
_FILE_TASKS = {"dumpfile", "readmemh", "readmemb"}
_CHECKS = (
    "setup hold setuphold recovery removal recrem width period skew timeskew fullskew nochange"
)
TIMING_CHECKS = frozenset(_CHECKS.split())
"""Names with a dollar sign in `specify` blocks that are no tasks."""
WAVES = re.compile(
    r"(?:/code/rundir/|\./)?(?:[\w-]+/)*[\w.-]{1,100}\.(?:vcd|fst|lxt|lxt2|vpd|fsdb|wlf)"
)
"""Wave files that a design may write, in the run directory."""
REFUSED = 99
"""Exit code in place of a refused simulation."""

STRING = r'"((?:[^"\\\n]|\\.)*)"'
_CALL = re.compile(
    rf"(?:%vpi_(?:call|func)|\.sfunc)\S*\s+(\d+)\s+(\d+)\s+{STRING}(?:\s*,\s*(?:{STRING}|([^\s,;{{]+)))?"
)
_DUMPS = frozenset({"dumpfile", "dumpvars", "dumplimit", "value$plusargs", "test$plusargs"})
_CALL_WORD = re.compile(r"%vpi_(?:call|func)|\.sfunc")
_FORCE = re.compile(r"%force/|%release/")
_LIBRARY = re.compile(r"^:vpi_module ", re.M)
_THROUGH = re.compile(r"(?:^|/)(?!\.\.?/)[^/]+/(?:.*/)?\.\.(?:/|$)")
"""A way up out of a folder, which may be a link to another place."""
_ESCAPE = re.compile(r"\\([0-7]{3}|.)")
_TEXT = re.compile(STRING)
_PARAMETER = re.compile(rf"^(P_\w+) \.param/(\w+) {STRING} (\d+)[^,\n]*, (.*);", re.M)
PORT = re.compile(rf"^ +\.port_info \d+ /(\w+) +(\d+) {STRING}", re.M)
"""Direction, bits and name of a port."""
_NAMED = re.compile(rf"^\s*\w+ \.(?:net|var|array)\S* {STRING}", re.M)
_SCOPE = re.compile(
    rf"^(S_\w+) \.scope ([\w.]+), {STRING} {STRING} \d+ \d+(?:.*, (S_\w+)|.*);", re.M
)
_CODE = "\n    .scope "
_IN_SCOPE = re.compile(r"^ +\.scope (S_\w+);$", re.M)
_PIECE = re.compile(r"^(?: +\.scope )?(S_\w+)(?: \.scope [^\n]*)?;$", re.M)
"""The line before each part of a program, declarations or code, with the label of its scope."""
_DECLARED = re.compile(r'^(?:v0x[0-9a-f]+|E_0x[0-9a-f]+(?= \.event "))', re.M)
"""Labels of variables, nets and named events. Icarus shares the events that wait for an edge between modules."""
_LABEL = re.compile(r"\b(?:S_|E_|v)0x[0-9a-f]+")
_RUNNERS = "cocotb_iverilog_dump"
_NUMBER = re.compile(r"(\+?)C4<([01xz]+)>")


Scope = namedtuple("Scope", "label kind name type parent text")
"""A module instance, a block, a task or a function. `parent` is the label of the enclosing scope, None for
a root; `text` is the part of the program about the scope itself: ports, parameters, nets."""


class Parameter(namedtuple("Parameter", "label kind name local value")):
    """`kind` is `str`, `real` or a letter for numbers; `local` parameters cannot be set."""

    @property
    def number(self):
        """(whether signed, bits), or None for text and real numbers."""
        match = _NUMBER.fullmatch(self.value)
        return match and (bool(match[1]), match[2])

    @property
    def readings(self):
        """The bits as an unsigned number and in two's complement; empty if there are none or some are unknown."""
        _, bits = self.number or (False, "x")
        if not set(bits) <= {"0", "1"}:
            return ()
        unsigned = int(bits, 2)
        return unsigned, unsigned - (int(bits[0]) << len(bits))


def scopes(program):
    """All scopes of a program, each after the enclosing one."""
    heads = list(_SCOPE.finditer(program))
    results = []
    for head, following in zip_longest(heads, heads[1:]):
        start = head.end()
        end = following.start() if following else program.find(_CODE, start)
        text = program[start:end] if end >= 0 else program[start:]
        results.append(Scope._make((*head.groups(), text)))
    return results


def _reaches_unnamed(program):
    """Whether a module refers to an unnamed block of another, or to a variable in it.

    Icarus numbers these blocks through the whole program, and an escaped identifier can spell their names.
    So a name that leads to a block of the design when it is compiled alone may lead into a test bench.
    """
    modules: dict = {}
    owners: dict = {}
    for scope in scopes(program):
        label = module = scope.label
        if scope.kind != "module":
            module = modules.get(scope.parent, label)
        modules[label] = module
        is_unnamed = scope.parent and scope.name.startswith("$")
        if is_unnamed or scope.parent in owners:
            labels = [label, *_DECLARED.findall(scope.text)]
            owners.update(dict.fromkeys(labels, module))
    parts = iter(_PIECE.split(program)[1:] if owners else ())
    for label, text in zip(parts, parts, strict=True):
        names = owners.keys() & _LABEL.findall(text)
        if any(owners[name] != modules.get(label) for name in names):
            return True
    return False


def parameters(text):
    """The parameters in the text of a scope or of a whole program."""
    return [
        Parameter(label, kind, name, local != "0", value)
        for label, kind, name, local, value in _PARAMETER.findall(text)
    ]


def refusals(program, more=frozenset(), harness=frozenset()):
    """Return reasons not to run the text of a compiled program; empty if it may be run.

    `more` are further allowed tasks (those in the problem's own files); `harness` are the base names of the
    harness' files, which `$readmem` must not load.
    """
    reasons = []
    program = _without_wave_dumper(program)
    calls = list(_CALL.finditer(program))
    # A name that breaks out of its quotes could inject instructions, so every call must have the known form.
    if len(calls) != len(_CALL_WORD.findall(program)):
        reasons.append("the compiled design holds a call that cannot be read")
    header = program.partition("\nS_")[0]
    if program.count(":vpi_module") != len(_LIBRARY.findall(header)):
        reasons.append("the compiled design loads a library")
    if _FORCE.search(program) and "force" not in more:
        reasons.append("a `force`")
    if _reaches_unnamed(program):
        reasons.append("a name that leads into an unnamed block of another module")
    names = _file_names(program)
    texts = [parameter for parameter in parameters(program) if parameter.kind == "str"]
    strings = {parameter.label: _TEXT.fullmatch(parameter.value) for parameter in texts}
    for call in calls:
        number, line, task, text, other = call.groups()
        place = f"{names.get(int(number), 'the design')}:{line}: "
        name = task.lstrip("$")
        if name not in ALLOWED_TASKS and name not in more and not _METHOD.fullmatch(name):
            reasons.append(f"{place}the system task ${name[:60]}")
        elif name in _FILE_TASKS and name not in more and (text, other) != (None, None):
            if string := strings.get(other):
                text = string[1]
            if complaint := _file_name(name, text, harness):
                reasons.append(place + complaint)
    return list(dict.fromkeys(reasons))


_TOKEN = re.compile(
    rf'("""|`systemc\w*)|{STRING}|//[^\n]*|/\*.*?\*/|\\[^ \t\n\r\f]+|(\$\w+)|\b(force|release)\b',
    re.S | re.A,
)


def refusals_of_text(text, more=frozenset()):
    """Like `refusals`, for Verilator, which compiles to C++: `text` is the output of its own preprocessor.

    It has no macros or conditions left, so a scan that skips strings, comments and escaped names finds
    every system task. Three quotes are refused: only newer versions begin a string with them. File names
    are not checked: tasks that access files are refused.
    """
    reasons = []
    tasks = (ALLOWED_TASKS - _FILE_TASKS) | more | {"root", "unit"} | TIMING_CHECKS
    for token in _TOKEN.finditer(text):
        directive, string, task, force = token.groups()
        if string in ("DPI-C", "DPI"):
            what = "a DPI import"
        elif task and task[1:] not in tasks:
            what = f"the system task {task[:60]}"
        elif directive or (force and "force" not in more):
            what = directive or "a `force`"
        else:
            continue
        line = text.count("\n", 0, token.start()) + 1
        reasons.append(f"line {line} after preprocessing: {what}")
    return list(dict.fromkeys(reasons))


def _without_wave_dumper(program):
    """The program without the code of the top level that cocotb's runner adds to write waves.

    If the runner adds it, no module of the design can have its name. If a harness names no top level, a
    design's own module of that name may be one, so code that does more than dump is checked like any other.
    """
    if _RUNNERS not in program:
        return program
    own = set()
    for scope in scopes(program):
        if scope.parent in own or (not scope.parent and scope.name == _RUNNERS):
            own.add(scope.label)
    head, *parts = _IN_SCOPE.split(program)
    pieces = list(zip(parts[::2], parts[1::2], strict=True))
    dumper = "".join(text for scope, text in pieces if scope in own)
    calls = [call[3].lstrip("$") for call in _CALL.finditer(dumper)]
    words = _CALL_WORD.findall(dumper)
    if len(calls) != len(words) or not _DUMPS.issuperset(calls):
        return program
    code = (text for scope, text in pieces if scope not in own)
    # The table of file names follows the last piece of code.
    file_names = program[program.rfind("\n:file_names ") :]
    return "\n".join([head, *code, file_names])


def _file_name(task, text, harness):
    """Complaint about the file name of a task, its first argument; None if it is allowed."""
    if text is None:
        return f"${task} of a file whose name is not a constant"
    path = _ESCAPE.sub(_character, text)
    if task == "dumpfile":
        if WAVES.fullmatch(path):
            return None
        return f"a $dumpfile that is no plain wave file ({path[:60]})"
    full = posixpath.normpath(posixpath.join("/code/rundir/sim_build", path))
    inside = full.startswith("/code/") and not full.startswith("/code/src/")
    inside = inside and not _THROUGH.search(path)
    if not path or (inside and posixpath.basename(full) not in harness):
        return None
    return f"${task} of a file that was not given ({path[:60]})"


def _character(escape):
    code = escape[1]
    if len(code) == 3:
        return chr(int(code, 8))
    return code


def _file_names(program):
    """Index -> base name, from the table at the program's end."""
    _, _, table = program.rpartition("\n:file_names ")
    _, *lines = table.split("\n")
    paths = (line.strip('\t ";') for line in lines)
    return dict(enumerate(map(posixpath.basename, paths)))


def changed_parameters(program, top, settings):
    """Parameters that the runner set without effect: [(name, value set, value in the program)].

    `settings` maps names to texts, as after `-P top.`. Names that the top level lacks are ignored, but not
    if a variable, net or block has the name, since a test bench would read it in place of the parameter.
    """
    all_scopes = scopes(program)
    root = next((scope for scope in roots(all_scopes) if scope.name == top), None)
    if root is None:
        return []
    own = {parameter.name: parameter for parameter in parameters(root.text)}
    others = set(_NAMED.findall(root.text))
    others.update(scope.name for scope in all_scopes if scope.parent == root.label)
    changes = []
    for name, setting in settings.items():
        if name in own:
            if not _has_value(own[name], setting):
                changes.append((name, setting, _readable(own[name])))
        elif name in others:
            changes.append((name, setting, "no parameter"))
    return changes


def roots(all_scopes):
    """The modules that no module instantiates."""
    return [scope for scope in all_scopes if scope.kind == "module" and scope.parent is None]


def port_widths(program, top):
    """(name, bits) of the ports of the top level."""
    texts = (scope.text for scope in roots(scopes(program)) if scope.name == top)
    return [(name, bits) for text in texts for _, bits, name in PORT.findall(text)]


def _has_value(parameter, setting):
    if parameter.kind == "str":
        text = setting.strip().strip('"')
        return text == parameter.value.strip('"')
    if parameter.number is None:
        return True
    try:
        return int(setting) in parameter.readings
    except ValueError:
        return True


def _readable(parameter):
    if not parameter.readings:
        return parameter.value[:60]
    signed, bits = parameter.number
    unsigned, complement = parameter.readings
    return str(complement if signed and len(bits) > 1 else unsigned)
