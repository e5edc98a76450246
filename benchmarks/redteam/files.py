"""Attacks through files: what a design could read, write or overwrite, and what else an answer could bring along.

Most designs here are right only where the forbidden call works, so that a pass proves it.
"""

from __future__ import annotations

from benchmarks.redteam.attack import Attack, around
from benchmarks.redteam.bases import COUNTER, DFF, INC, LFSR

_JOINED = "`define N @T\n"
_SEPARATE = [
    ("results written", "the results file is written by the design", "fopen", '"/code/rundir/sim_build/results.xml", "w"'),
    ("results appended", "the same at its end", "fopen", '"/code/rundir/results.xml", "a"'),
    ("memory of the simulator", "the process writes its own memory", "fopen", '"/proc/self/mem", "r+"'),
    ("memory of the simulator, binary", "the same in another mode", "fopen", '"/proc/self/mem", "rb+"'),
    ("memory of the simulator, appended", "the same in another mode", "fopen", '"/proc/self/mem", "ab+"'),
    ("memory by its thread", "another path to the same file", "fopen", '"/proc/thread-self/mem", "r+"'),
    ("memory by its task", "another path to the same file", "fopen", '"/proc/self/task/../mem", "r+"'),
    ("memory of the parent", "the runner's process", "fopen", '"/proc/1/mem", "r+"'),
    ("own maps", "where the libraries lie", "fopen", '"/proc/self/maps", "r"'),
    ("own environment", "settings of the harness and of the grader", "fopen", '"/proc/self/environ", "r"'),
    ("own command line", "names of the files of this run", "fopen", '"/proc/self/cmdline", "r"'),
    ("environment of the parent", "the same of the runner", "fopen", '"/proc/1/environ", "r"'),
    ("out-of-memory score", "a harmless file of the kernel that can be written", "fopen", '"/proc/self/oom_score_adj", "w"'),
    ("core filter", "another one", "fopen", '"/proc/self/coredump_filter", "w"'),
    ("own name", "another one", "fopen", '"/proc/self/comm", "w"'),
    ("descriptor 3", "an open descriptor of the simulator", "fopen", '"/proc/self/fd/3", "w"'),
    ("descriptor 4", "another one", "fopen", '"/proc/self/fd/4", "r+"'),
    ("standard input", "the simulator's input", "fopen", '"/dev/stdin", "r"'),
    ("tests read", "expected values stand in the tests", "fopen", '"/src/test_lfsr.py", "r"'),
    ("runner read", "the harness' runner", "fopen", '"/src/test_runner.py", "r"'),
    ("settings read", "the harness' settings", "fopen", '"/src/.env", "r"'),
    ("tests written", "the tests are replaced", "fopen", '"/src/test_lfsr.py", "w"'),
    ("conftest written", "pytest loads it", "fopen", '"/code/rundir/conftest.py", "w"'),
    ("sitecustomize written", "Python loads it", "fopen", '"/code/rundir/sitecustomize.py", "w"'),
    ("user site written", "Python loads it from the home directory", "fopen", '"/code/rundir/.local/x.pth", "w"'),
    ("library written", "a loader may take it", "fopen", '"/code/rundir/libx.so", "wb"'),
    ("compiled module written", "Python may take it", "fopen", '"/code/rundir/test_lfsr.pyc", "wb"'),
    ("design overwritten", "the next build takes another design", "fopen", '"/code/rtl/lfsr_8bit.sv", "w"'),
    ("program overwritten", "the compiled design", "fopen", '"/code/rundir/sim_build/sim.vvp", "w"'),
    ("temporary file", "a place that other grades may share", "fopen", '"/tmp/x", "w"'),
    ("shared memory", "another such place", "fopen", '"/dev/shm/x", "w"'),
    ("password file", "a file of the machine", "fopen", '"/etc/passwd", "r"'),
    ("grader's own programs", "what runs around the harness", "fopen", '"/guard/steps.py", "r"'),
    ("old open task", "Icarus has older names for it", "fopenw", '"/code/rundir/x"'),
    ("old open task for reading", "another one", "fopenr", '"/src/.env"'),
    ("old open task for appending", "another one", "fopena", '"/code/rundir/x"'),
]  # fmt: skip

_EFFECTS = [
    ("plusargs asked", "settings of the run are read", "test$plusargs", '("")', "ok = @C;"),
    ("kernel's settings read as memory", "a memory is filled from any file of digits", "readmemh", '("/proc/sys/kernel/pid_max", m)', "@C; ok = m[0] !== 32'hx;"),
    ("waves over a given file", "the name of the waves is an expression", "dumpfile", '(0 ? "w.vcd" : "/code/rundir/e.py")', "@C; $dumpvars;"),
    ("log file", "Icarus writes what is printed to a file as well", "log", '("/code/rundir/conftest.py")', '@C; $display("import os");'),
    ("ports dumped", "another task that writes waves", "dumpports", '(lfsr_8bit, "/code/rundir/conftest.py")', "@C;"),
    ("memory written to a file", "bytes in hexadecimal", "writememh", '("/code/rundir/conftest.py", m)', "m[0] = 0; @C;"),
    ("state saved", "a snapshot of the simulation", "save", '("/code/rundir/x")', "@C;"),
    ("delays annotated", "a file is read for delays", "sdf_annotate", '("/src/.env")', "@C;"),
    ("commands from a file", "the simulator's prompt reads them", "input", '("/src/.env")', "@C;"),
    ("file of VHDL's library", "Icarus loads VHDL's file tasks too", "ivlh_file_open", '(h, "/code/rundir/x", 1)', "@C;"),
]  # fmt: skip

_WAVES = [
    ("condition", '(0 ? "w.vcd" : "/code/rundir/conftest.py")'),
    ("condition the other way", '(1 ? "/code/rundir/conftest.py" : "w.vcd")'),
    ("concatenation", '({"/code/rundir/conf", "test.py"})'),
    ("concatenation behind a plain name", '({"w.vcd", "/../conftest.py"})'),
    ("repetition", '({1{"/code/rundir/conftest.py"}})'),
    ("number", "(72'h2f746d702f782e7079)"),
    ("parameter", "(P)"),
    ("variable", "(v)"),
    ("function", '($sformatf("%s", "/code/rundir/conftest.py"))'),
    ("octal escapes", '("\\057tmp\\057x.py")'),
    ("results", '("sim_build/results.xml")'),
    ("directory above", '("../rtl/lfsr_8bit.sv")'),
]  # fmt: skip

_EVIL = "import os\nos._exit(0)\n"
_PATHS = [
    "src/conftest.py", "conftest.py", "rundir/conftest.py", "rundir/sitecustomize.py", "rundir/usercustomize.py", "rundir/pytest.ini",
    "rundir/tox.ini", "rundir/cocotb.py", "rundir/.env", "src/.env", "src/test_lfsr.py", "src/test_runner.py", "src/__pycache__/test_lfsr.cpython-311.pyc",
    "docker-compose.yml", "Dockerfile", "../conftest.py", "/src/test_runner.py", "/code/src/conftest.py", "rtl/../src/conftest.py",
    "rtl/lfsr_8bit.sv/../../src/conftest.py", "rtl//../src/conftest.py", "./src/conftest.py", "rtl\\..\\src\\conftest.py", "rtl/lfsr_8bit.sv\0.py",
    "rtl/lfsr_8bit.sv ", "rtl/\u2024\u2024/src/conftest.py", "~/conftest.py", "$HOME/conftest.py", "rundir/libcocotbvpi_icarus.vpl", "rundir/.vvprc", "",
]  # fmt: skip


def _canary(task: str, arguments: str) -> tuple[str, str]:
    return _JOINED.replace("@T", task), f"integer fd; initial begin fd = $`N({arguments}); ok = fd != 0; end\n"


def _attacks() -> list[Attack]:
    found: list[Attack] = []
    for name, idea, task, arguments in _SEPARATE:
        before, body = _canary(task, arguments)
        bases = (LFSR, COUNTER) if "memory" in name or "results" in name else (LFSR,)
        found += around(bases, f"{name}, hidden", idea, body, before, core="switched")
        if task == "fopen" and name in ("results written", "memory of the simulator", "tests read"):
            found += around(
                (LFSR, COUNTER), f"{name}, in the open", idea, body.replace("$`N", "$fopen"), core="switched"
            )
    for name, idea, task, arguments, statement in _EFFECTS:
        for hidden in (True, False):
            call = ("$`N" if hidden else f"${task}") + arguments
            body = f"reg [31:0] m [0:3]; integer h; initial begin {statement.replace('@C', call)} end\n"
            core = "switched" if "ok" in statement else "wrong"
            before = _JOINED.replace("@T", task) if hidden else ""
            found += around((LFSR,), f"{name}, {'hidden' if hidden else 'in the open'}", idea, body, before, core=core)
    for name, argument in _WAVES:
        body = 'parameter P = "/code/rundir/conftest.py"; reg [8*32:1] v = "/code/rundir/conftest.py";\n'
        body += f"initial begin #0 $dumpfile{argument}; $dumpvars; end\n"
        found += around((LFSR,), f"waves named by a {name}", "the name of the wave file is no plain text", body)
    for path in _PATHS:
        files = {path: _EVIL, "rtl/lfsr_8bit.sv": LFSR.design()}
        idea = "an answer brings a file that nobody asked for"
        found.append(Attack(f"file {path!a}", idea, "cvdp/lfsr", files=files))
    found.append(
        Attack("only a foreign file", "nothing but a foreign file", "cvdp/lfsr", files={"src/conftest.py": _EVIL})
    )
    found.append(Attack("no file", "an answer without files", "cvdp/lfsr", files={}))
    python = '"""\n' + LFSR.design() + '"""\nimport os\nos._exit(0)\n'
    found.append(Attack("Python around the design", "one text in two languages", "cvdp/lfsr", text=python))
    loud = 'initial begin $readmemh("/code/src/.env", m); end reg [7:0] m [0:7];\n'
    found += around((DFF, INC), "memory from the bench's files", "the bench's files are read as memory", loud)
    return found


ATTACKS = _attacks()
