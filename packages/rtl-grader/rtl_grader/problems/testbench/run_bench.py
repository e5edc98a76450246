"""Compiles an answer with a test bench, runs it, and exits with 0 only if the bench's own verdict says that it passed.

The answer is hostile code in the same simulation as the bench. What keeps them apart:
* The bench writes its verdict to a file that it opens itself (rewrite.py made it so). The simulator's
  output decides nothing.
* The answer is also compiled alone, so no name in it leads out. That program may call nothing that reaches
  a file, and must drive none of its inputs; what is simulated later holds the same instances with the same
  parameters.
* The bench's names carry a word made of the answer's text, so both sides may use the same names and cannot
  use each other's.
* If the verdict is printed at the end of the simulation, or the answer can end it, the bench itself must have ended it.
* Macros, includes and given files: the bench has none of them left, but its own copy of what it uses (rewrite.py). The
  given files are compiled again before the answer, alone and beside the bench, so that all directives that
  reach the answer are the same. It may include only files that were given, and its own.
* Only the bench's own `$error`, `$fatal` and assertions count: each writes to the same file.
Reads /src/bench.json and /src/bench.sv; needs Python's standard library, Icarus Verilog and the sandbox's /guard/lib.

Not covered: a bench that a design fools through its ports alone; validation looks for these. A bench that leaves a name
undeclared as an implicit net.
"""

import hashlib
import json
import os
import re
import subprocess
import sys

try:
    import gate
    from compiled import PORT, scopes
    from instances import hides_inputs, instances, parameters, port_complaint, shape
except ImportError as missing:
    sys.exit(f"this sandbox cannot look into compiled programs: {missing}")

WORD = "RTLWORD"
ENDED = "the test bench ended the simulation"
FAULT = "the test bench reported an error"
STILL = "no output of the design changed its value"
VERDICT_FILE = "verdict"
ENDING = re.compile(r'"\$(?:finish|stop|fatal)"')
CHANNEL_TASKS = [
    "fopen",
    *(
        "f" + kind + base
        for kind in ("display", "write", "strobe", "monitor")
        for base in ["", *"bho"]
    ),
]


def main():
    bench = json.loads(read("/src/bench.json"))
    answer = []
    for path in bench["designs"]:
        if not os.path.isfile("/code/" + path):
            return f"there is no {path}"
        answer.append(source(path))
    # Names are settled when the answer is compiled, and no text holds its own digest.
    word = "b" + hashlib.sha256(b"".join(answer)).hexdigest()[:24]
    os.mkdir(word)
    os.chdir(word)
    for place, path in bench["data"].items():
        os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
        write(place, read(path))
    write("bench.sv", read("/src/bench.sv").replace(WORD, word))
    # The same file both times, and nothing of the bench's directives before it.
    timescale = [f"`timescale {bench['timescale']}"] if bench["timescale"] else []
    head = "\n".join(["`resetall", *timescale, *bench["define"], ""])
    with open("design.sv", "wb") as file:
        file.write(head.encode() + b"".join([*map(source, bench["given"]), *answer]))

    both = compiler("sim", bench["top"].replace(WORD, word), "bench.sv", "design.sv")
    # Two compilers at a time, unless the one has to show the parameters that the other is given.
    apart = None if bench["overridden"] else alone(word, bench, [""])
    said, code = finished(both, word)
    if code:
        if apart:
            finished(apart, word)
        return said
    beside = read("sim")
    together = instances(beside, bench["dut"])
    if not together:
        return f"the test bench holds no module {bench['dut']} of the answer"
    if apart is None:
        apart = alone(
            word, bench, [parameters(instance, bench["overridden"]) for instance in together]
        )
    said, code = finished(apart, word)
    if code:
        return "the answer does not compile without the test bench:\n" + said
    included = read("included").splitlines() if os.path.exists("included") else []
    files = {"/code/" + path for path in bench["files"]}
    if not files.issuperset(map(os.path.normpath, included)):
        return "the answer includes a file that was not given, which is not allowed here"
    program = read("alone")
    apart = instances(program, bench["dut"])
    if not apart or any(
        shape(instance) != shape(apart[place % len(apart)])
        for place, instance in enumerate(together)
    ):
        return "the answer is built otherwise beside the test bench than alone"
    complaint = ports_complaint(
        word, bench, apart, any(hides_inputs(instance, beside) for instance in together)
    )
    if complaint:
        return complaint
    sys.stdout.flush()
    # Both end this process, with a word to the grader, when a program must not be run.
    gate.stop_if_refused(["alone"], {})
    gate.stop_if_refused(["sim"], {"RTL_TASKS": ",".join([*bench["tasks"], *CHANNEL_TASKS])})
    return simulate(word, bench, program)


def simulate(word, bench, program):
    """Run the answer with its bench, and print the log. Returns why the answer fails; None if it passes."""
    with open("log", "wb") as log:
        code = subprocess.call(
            [simulator(), "-n", "sim", "-none", *bench["plusargs"]],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    lines = read(VERDICT_FILE).splitlines() if os.path.isfile(VERDICT_FILE) else []
    printed = [line for line in lines if line not in (ENDED, FAULT)]
    said = read("log").replace("_" + word, "")
    print(said[-8000:])
    print("\n".join(printed)[-2000:])
    if FAULT in lines:
        first = re.search(r"^(?:ERROR|FATAL): .*", said, re.M)
        return f"{FAULT}: {first[0][:400]}" if first else FAULT
    if code:
        return f"the simulator ended with code {code}"
    if STILL in lines:
        gate.witness.report({"kind": "still"})
    if (bench["ended"] or ENDING.search(program)) and ENDED not in lines:
        return "the simulation was ended before the test bench had come to its end"
    return verdict_complaint([line for line in printed if line != STILL], bench)


def ports_complaint(word, bench, apart, hidden):
    """Why one of the instances that are compiled alone could reach into the bench, see `port_complaint`;
    None if none could.

    With `hidden` inputs a single instance is compiled once more, with wires that have the ports' names.
    """
    texts = [instance[0].text for instance in apart]
    if hidden and len(apart) == 1:
        finished(
            alone(
                word, bench, [parameters(apart[0], bench["overridden"])], PORT.findall(texts[0])
            ),
            word,
        )
        texts = [scope.text for scope in scopes(read("alone")) if scope.name == "alone_" + word]
    program = read("alone")
    complaints = (
        port_complaint(instance, text, program, bench["ports"], bench["connected"])
        for instance, text in zip(apart, texts, strict=True)
    )
    return next(filter(None, complaints), None)


def verdict_complaint(lines, bench):
    """Why what the bench printed to its file is not a pass; None when it is."""
    for line in lines if bench["failed"] else ():
        if re.search(bench["failed"], line):
            return f"the test bench says: {line[:400]}"
    if not bench["passed"]:
        return None  # that it ended without an error is the verdict
    said = [line for line in lines if bench["marker"] in line]
    if not said:
        return "the test bench came to no verdict"
    passed = [re.search(bench["passed"], line) for line in said]
    # Without a marker a line may say what it likes, if another one says that the design passed.
    if not any(passed) or (bench["marker"] and not all(passed)):
        return "the test bench did not say that the design passed"
    return None


def alone(word, bench, settings, ports=()):
    """Starts to compile the design under a top level that holds nothing else: an instance for each setting
    of parameters, and a wire for each of `ports`.
    """
    top = "alone_" + word
    wires = [f"  wire [{bits}-1:0] \\{name} ;" for _, bits, name in ports]
    joined = ", ".join(f".\\{name} (\\{name} )" for _, _, name in ports)
    held = [
        f"  {bench['dut']} #({setting}) dut{number} ({joined});"
        for number, setting in enumerate(settings)
    ]
    write("alone.sv", "\n".join([f"module {top};", *wires, *held, "endmodule", ""]))
    return compiler("alone", top, "-Minclude=included", "alone.sv", "design.sv")


def compiler(output, top, *words):
    return subprocess.Popen(
        [
            "iverilog",
            "-g2012",
            "-Wno-timescale",
            "-s",
            top,
            "-I/code/rtl",
            "-o",
            output,
            *words,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finished(process, word):
    """(what a process said, without the word of this run; its exit code)"""
    said = process.communicate()[0].decode(errors="replace")
    return said.replace("_" + word, ""), process.returncode


def simulator():
    """The simulator itself: what stands before it in PATH to look at programs has looked already."""
    for place in os.environ.get("PATH", "").split(":"):
        program = os.path.join(place, "vvp")
        if place and not place.startswith("/guard") and os.access(program, os.X_OK):
            return program
    return "vvp"


def source(path):
    """A file of the workspace, as it is compiled."""
    with open("/code/" + path, "rb") as file:
        return f'`line 1 "{os.path.basename(path)}" 0\n'.encode() + file.read() + b"\n"


def read(path):
    with open(path, errors="replace") as file:
        return file.read()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    complaint = main()
    if complaint:
        print(complaint[-4000:])
        print("0 of 1 tests passed")
    else:
        print("1 of 1 tests passed")
    sys.exit(1 if complaint else 0)
