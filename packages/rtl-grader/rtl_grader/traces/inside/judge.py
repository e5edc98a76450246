"""Judges an answer by its golden one: simulates the answer with stimuli that depend only on the problem, and
compares what it gives with what the golden answer gave. Runs in the sandbox: `python3 /src/judge.py`.

The golden answer's trace is in `src/expected`, which is unpacked after the simulation has ended. Without that
file the design is the golden answer, and its trace is the last line of the output. The results go to the
grader over the sandbox's channel; nothing that a design prints does.
"""

import base64
import json
import os
import re
import sys
import zlib

import comparing
import tracing
from tracing import gate, read

SOURCE = "/code/src/"
NO_PARAMETER = re.compile(r"parameter .* not found", re.I)
MOST_WORDS = 1000


def main():
    with open(SOURCE + "judge.json") as file:
        settings = json.load(file)
    with open(SOURCE + "trace.json") as file:
        sets = json.load(file)
    paths = [f"/code/{path}" for path in (*settings["compiled"], *settings["design"])]
    present = [path for path in paths if path.endswith((".v", ".sv")) and os.path.isfile(path)]
    options = ["-I", "/code/rtl"]
    for folder in settings["include"]:
        options += ["-I", f"/code/{folder}"]
    options += [f"-D{name}={value}" for name, value in settings["define"].items()]
    design = tracing.Design(present, options)
    if not os.path.exists(SOURCE + "expected"):
        print("\n" + json.dumps(expect(design, sets)))
        return 0
    return judge(design, sets)


def expect(design, sets):
    """The golden answer's traces: {why} or {sets: numbers of those that can judge, expected}."""
    good = []
    for number, each in enumerate(sets):
        said, compiles, _ = design.compile([number])
        why = f"it does not compile: {said.strip()[:500]}"
        if compiles:
            (lines,), why = design.simulate([number])
            if len(lines) < each["steps"]:
                why = f"its simulation ended after {len(lines)} of {each['steps']} inputs{why}"
            else:
                why = comparing.weakness(lines, each["outputs"], each["first"])
            print(f"set {number}: {why}")
        if why and number == 0:
            return {"why": why}
        if not why and not NO_PARAMETER.search(said):
            good.append(number)
    design.compile(good)
    traces, _ = design.simulate(good)
    text = b"\n\n".join(b"\n".join(lines) for lines in traces)
    return {"sets": good, "expected": base64.b64encode(zlib.compress(text, 6)).decode()}


def judge(design, sets):
    """Compare the answer with the golden one, and report each output in each group of steps as a test."""
    if not design.files:
        return refuse("the answer has no file that could be simulated")
    numbers = list(range(len(sets)))
    said, compiles, command = design.compile(numbers)
    failed = ""
    if not compiles and len(sets) > 1:
        failed = said
        numbers = [0]
        said, compiles, command = design.compile(numbers)
    gate.witness.report(
        {
            "kind": "build",
            "argv": command,
            "exit_code": int(not compiles),
            "output": said[-20000:],
            "parameters": [],
        }
    )
    if not compiles:
        return refuse(said)
    if foreign := design.foreign():
        return refuse(f"the answer includes {foreign}, which is not a file of the problem")
    traces, ended = design.simulate(numbers)
    traces += [[] for _ in sets[len(numbers) :]]
    expected = tracing.unpacked(read(SOURCE + "expected")).split(b"\n\n")
    tests = []
    for number, golden in enumerate(expected):
        why = ended
        if number not in numbers:
            why = f", since it does not compile: {first_error(failed)}"
        tests += results(sets, number, golden, traces[number], why)
    return attest(tests)


def results(sets, number, golden, lines, why):
    """One test for each output and group of steps: (step of the first difference or None, name, message)."""
    each = sets[number]
    values = ", ".join(f"{name}={value}" for name, value in each["values"].items())
    suffix = f" with {values}" if values else ""
    golden = golden.split(b"\n")
    if lines == golden:
        comparison = comparing.Comparison(golden, golden, each["outputs"], each["first"])
    else:
        comparison = comparing.Comparison(golden, lines, each["outputs"], each["first"])
    stimuli = None
    tests = []
    first = dict(comparison.unknown)
    for place, step in comparison.wrong.items():
        first[place] = min(step, first.get(place, step))
    for name, _ in each["outputs"]:
        for group in comparison.groups():
            step = first.get((name, group))
            message = ""
            if step is not None:
                if stimuli is None:
                    packed = read(f"{SOURCE}stimuli{number}")
                    stimuli = tracing.unpacked(packed).split(b"\n")
                message = words(comparison, name, step, each, stimuli, why)
            tests.append((step, f"{name}, phase {group + 1}{suffix}", message))
    return tests


def words(comparison, name, step, each, stimuli, why):
    """`after 7 inputs, a=1, b=0: is 1, golden 0`."""
    said = comparison.words(name, step)
    if step >= len(comparison.other):
        return said + why
    inputs = comparing.stimulus_words(int(stimuli[step], 16), each["inputs"])
    return f"after {step + 1} inputs, {inputs}: {said}" if inputs else said


def first_error(said):
    lines = [line for line in said.splitlines() if "error" in line] or said.splitlines()
    return lines[0][:300] if lines else "no output"


def refuse(why):
    print(why[-4000:])
    return 1


def attest(tests):
    """Report (step of the first difference, name, message) of all tests to the grader, the first difference
    first."""
    last = 1 << 60
    ordered = sorted(tests, key=lambda test: last if test[0] is None else test[0])
    reports = [
        {
            "name": name,
            "status": "passed" if step is None else "failed",
            "message": message[:MOST_WORDS],
            "file": "/src/judge.py",
            "ns": "",
        }
        for step, name, message in ordered
    ]
    gate.witness.report_tests(reports)
    failed = [test for test in reports if test["status"] == "failed"]
    for test in failed[:3]:
        print(f"{test['name']}: {test['message']}")
    print(f"{len(reports) - len(failed)} of {len(reports)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
