"""Judges an answer by its golden one: simulates the answer with stimuli that depend only on the problem, and
compares what it gives with what the golden answer gave. Runs in the sandbox: `python3 /src/judge.py`.

The golden answer's trace is in `src/expected`, which is unpacked after the simulation has ended. A proof may
follow (`prover.py`). Where `src/plan.json` says that the design is the golden answer itself, its trace is the last
line of the output. The results go to the grader over the sandbox's channel; nothing that a design prints does.
"""

import base64
import json
import os
import re
import resource
import subprocess
import sys
import zlib

import comparing
import tracing
from tracing import gate, read

SOURCE = "/code/src/"
NO_PARAMETER = re.compile(r"parameter .* not found", re.I)
MOST_WORDS = 1000
MOST_STEPS_TOLD = 20
READING_CPU_S = 10
"""CPU seconds in which Yosys reads or encodes one design."""
PROOF_BYTES = 3 << 30
"""Address space of a process of the proof."""


def main():
    settings = json.loads(read(SOURCE + "judge.json"))
    sets = json.loads(read(SOURCE + "trace.json"))
    options = ["-I", "/code/rtl"]
    for folder in settings["include"]:
        options += ["-I", f"/code/{folder}"]
    options += [f"-D{name}={value}" for name, value in settings["define"].items()]
    answer = present(settings, "/code/")
    design = tracing.Design([*compiled(settings), *answer], options)
    plan = json.loads(read(SOURCE + "plan.json"))
    if plan["role"] == "golden":
        print("\n" + json.dumps(expect(design, sets, settings, plan)))
        return 0
    if not answer:
        return refuse("the answer has no file that could be simulated")
    return judge(design, sets, settings, plan)


def compiled(settings):
    return [f"/code/{path}" for path in settings["compiled"]]


def present(settings, place):
    """The design's HDL files below a folder that exist."""
    paths = [place + path for path in settings["design"]]
    return [path for path in paths if path.endswith((".v", ".sv")) and os.path.isfile(path)]


def stimuli_of(number):
    return tracing.unpacked(read(f"{SOURCE}stimuli{number}"))


def compared(golden, other, each, settings, stimuli):
    """The comparison of two traces that the problem asks for."""
    valid = settings["judging"]["valid"]
    if not valid:
        return comparing.Comparison(golden, other, each["outputs"], each["first"])
    steps = [int(line, 16) for line in stimuli.split(b"\n")]
    return comparing.InOrder(golden, other, each, steps, valid)


# The golden answer


def expect(design, sets, settings, plan):
    """The golden answer's traces: {why} or {sets: numbers of those that can judge, expected}. With `proof` in the
    plan a proof that it equals itself stands in for a trace."""
    good = {}
    for number, each in enumerate(sets):
        stimuli = stimuli_of(number)
        said, compiles, _ = design.compile({number: stimuli})
        if not compiles:
            why = f"it does not compile: {first_errors(said)}"
        else:
            why = trace_weakness(design, number, each, settings, stimuli)
        if why and number == 0:
            if plan["proof"]:
                proof = prove(design, settings, plan, design.files)
                why += "" if proof["outcome"] == "equal" else f"; not proved: {proof['why']}"
                return {"why": why, "proved": proof["outcome"] == "equal"}
            return {"why": why}
        if not why and not NO_PARAMETER.search(said):
            good[number] = stimuli
    design.compile(good)
    traces, _ = design.simulate(good)
    text = b"\n\n".join(b"\n".join(lines) for lines in traces)
    packed = base64.b64encode(zlib.compress(text, 6)).decode()
    return {"why": "", "sets": list(good), "expected": packed}


def trace_weakness(design, number, each, settings, stimuli):
    """Why the golden answer's trace cannot judge; empty if it can."""
    (lines,), ended = design.simulate([number])
    steps = stimuli.count(b"\n") + 1
    if len(lines) < steps:
        return f"its simulation ended after {len(lines)} of {steps} inputs{ended}"
    if why := comparing.weakness(lines, each["outputs"], each["first"]):
        return why
    patterns = 1 << sum(width for _, width in each["inputs"])
    tried_all = not each["clocks"] and steps >= patterns
    if len(set(lines[each["first"] :])) == 1 and not tried_all:
        return "its outputs never change"
    valid = settings["judging"]["valid"]
    if not valid:
        return ""
    if valid not in dict(each["outputs"]) or not each["clocks"]:
        return f"it has no clock, or no output {valid} that could mark values"
    queues = compared(lines, lines, each, settings, stimuli).queues(lines)
    values = sum(len(queue) for _, queue in queues)
    if values < comparing.LEAST_VALUES:
        return f"its output {valid} is 1 in {values} cycles only"
    return ""


# The answer


def judge(design, sets, settings, plan):
    """Compare the answer with the golden one, and report each output in each group of steps as a test."""
    if not os.path.exists(SOURCE + "expected"):
        return judge_by_proof(design, settings, plan, plan["why"])
    stimuli = {number: stimuli_of(number) for number in range(len(sets))}
    said, compiles, command = design.compile(stimuli)
    failed = ""
    numbers = list(stimuli)
    if not compiles and len(sets) > 1:
        failed = said
        numbers = [0]
        said, compiles, command = design.compile({0: stimuli[0]})
    if not compiles and plan["proof"] == "undecided":
        return judge_by_proof(design, settings, plan, first_errors(said))
    report_build(command, said, compiles)
    if not compiles:
        return refuse(said)
    if foreign := design.foreign():
        return refuse(f"the answer includes {foreign}, which is not a file of the problem")
    traces, ended = design.simulate(numbers)
    tests = []
    expected = tracing.unpacked(read(SOURCE + "expected")).split(b"\n\n")
    for number, golden in enumerate(expected):
        each = sets[number]
        lines, why = [], f", since it does not compile: {first_errors(failed)}"
        if number in numbers:
            lines, why = traces[number], ended
        comparison = compared(golden.split(b"\n"), lines, each, settings, stimuli[number])
        tests += results(comparison, each, stimuli[number], why)
    if plan["proof"] == "passes" and all(step is None for step, _, _ in tests):
        return attest(tests, [proof_test(design, sets[0], settings, plan)])
    return attest(tests)


def report_build(command, said, compiles):
    gate.witness.report(
        {
            "kind": "build",
            "argv": command,
            "exit_code": int(not compiles),
            "output": said[-20000:],
            "parameters": [],
        }
    )


def results(comparison, each, stimuli, why):
    """One test for each output and group of steps: (step of the first difference or None, name, message)."""
    values = ", ".join(f"{name}={value}" for name, value in each["values"].items())
    suffix = f" with {values}" if values else ""
    first = comparison.first_differences()
    steps = stimuli.split(b"\n") if first else []
    tests = []
    for name, _ in each["outputs"]:
        for group in comparison.groups():
            step, message = first.get((name, group), (None, ""))
            if step is not None:
                inputs = comparing.stimulus_words(int(steps[step], 16), each["inputs"])
                message += why if message.startswith("is missing") else ""
                message = f"after {step + 1} inputs, {inputs or 'none'}: {message}"
            tests.append((step, f"{name}, phase {group + 1}{suffix}", message))
    return sorted(tests, key=lambda result: result[0] or 0)


def first_errors(said):
    lines = [line for line in said.splitlines() if "error" in line or "sorry" in line]
    return "; ".join(lines[:3] or said.splitlines()[:1] or ["no output"])[:400]


def refuse(why):
    print(why[-4000:])
    return 1


# The proof


def judge_by_proof(design, settings, plan, why):
    """Pass the answer only if it is proved equal, since a simulation gives no result."""
    proof = prove(design, settings, plan, plan["unproved"] or golden_files(settings))
    if proof["outcome"] == "equal":
        return attest([], [entry("proof", "passed", f"proved equal; not simulated: {why}")])
    said = f"not simulated: {why}\nerror: not proved equal to the golden answer: {proof['why']}"
    if proof["outcome"] == "different":
        return attest([], [entry("proof", "failed", f"differs {in_words(proof['trace'])}")])
    report_build(["proof"], said, False)
    return refuse(said)


def proof_test(design, each, settings, plan):
    """The result of a proof after a simulation that showed no difference, as a test: it fails only if the
    simulator confirms the difference."""
    golden = plan["unproved"] or golden_files(settings)
    proof = prove(design, settings, plan, golden)
    if proof["outcome"] == "equal":
        return entry("proof", "passed", "proved equal")
    if proof["outcome"] != "different":
        return entry("proof", "skipped", f"not proved: {proof['why']}")
    trace, clock = proof["trace"], proof["clock"]
    steps = comparing.replay_steps(each["inputs"], trace, each["clocks"], clock)
    stimuli = b"\n".join(b"%x" % step for step in steps)
    traces = []
    for files in ([*compiled(settings), *golden], design.files):
        replayed = tracing.Design(files, design.options)
        _, compiles, _ = replayed.compile({0: stimuli})
        traces.append(replayed.simulate([0])[0][0] if compiles else [])
    # The property holds until the last cycle.
    last = len(steps) - len(steps) // max(1, len(trace))
    comparison = comparing.Comparison(*traces, each["outputs"], max(0, last))
    for (name, _), (_, said) in sorted(comparison.first_differences().items()):
        return entry("proof", "failed", f"{in_words(trace)}: {name} {said}")
    return entry(
        "proof", "skipped", "not proved: a difference that the simulator does not show"
    )


def in_words(trace):
    """The shortest inputs that tell two designs apart, at most the last ones of them."""
    steps = [", ".join(f"{name}={value}" for name, value in step.items()) for step in trace]
    return f"after the inputs {'; '.join(steps[-MOST_STEPS_TOLD:])}"


def golden_files(settings):
    """Unpack the golden answer's files to a folder that the answer could not name."""
    folder = f"/code/rundir/{os.urandom(12).hex()}/"
    for path, text in json.loads(tracing.unpacked(read(SOURCE + "golden"))).items():
        os.makedirs(os.path.dirname(folder + path), exist_ok=True)
        tracing.write(folder + path, text.encode())
    return present(settings, folder)


def prove(design, settings, plan, golden):
    """What `prover.py` says of the design and the golden answer's files: {outcome, why, trace, clock}. `golden` may be
    the reason, in words, why nothing is proved."""
    if isinstance(golden, str):
        return {"outcome": "undecided", "why": golden}
    # No include is left: the proof makes copies of the golden answer, which the answer could name.
    text, why = design.preprocess()
    if why:
        return {"outcome": "undecided", "why": why}
    spec = {
        **plan["spec"],
        "values": {},
        "golden": golden if golden is design.files else [*compiled(settings), *golden],
        "other": [text],
        "top": settings["top"],
    }
    tracing.write("spec.json", json.dumps(spec).encode())
    done = subprocess.run(
        [sys.executable, SOURCE + "prover.py", "spec.json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: limit(max(READING_CPU_S, spec["cpu_s"])),
    )
    proof = {"outcome": "undecided", "why": f"the proof ended with code {done.returncode}"}
    try:
        proof.update(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        print(done.stdout.decode(errors="replace")[-2000:])
    if proof["outcome"] == "bounded":
        proof["why"] = f"proved for {proof['depth']} cycles, not further"
    return proof


def limit(cpu_s):
    """Limit a process of the proof, as far as the sandbox has not done so."""
    limits = ((resource.RLIMIT_CPU, int(cpu_s) + 1), (resource.RLIMIT_AS, PROOF_BYTES))
    for kind, most in limits:
        _, hard = resource.getrlimit(kind)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


# The report


def entry(name, status, message):
    """A test as the grader gets it."""
    return {
        "name": name,
        "status": status,
        "message": message[:MOST_WORDS],
        "file": "/src/judge.py",
        "ns": "",
    }


def attest(results, more=()):
    """Report all results to the grader, the differences first, and further tests."""
    ordered = sorted(results, key=lambda result: result[0] is None)
    reports = [
        entry(name, "passed" if step is None else "failed", message)
        for step, name, message in ordered
    ]
    reports += more
    gate.witness.report_tests(reports)
    failed = [report for report in reports if report["status"] == "failed"]
    for report in failed[:3]:
        print(f"{report['name']}: {report['message']}")
    print(f"{len(reports) - len(failed)} of {len(reports)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
