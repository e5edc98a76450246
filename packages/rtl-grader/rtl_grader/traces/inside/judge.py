"""Judges an answer by its golden one: simulates the answer with the stimuli of the problem, and
compares what it gives with what the golden answer gave. Runs in the sandbox: `python3 /src/judge.py`.

The golden answer's trace is in `src/expected`, which is unpacked after the simulation has ended. A proof may
follow (`prover.py`). Where `src/plan.json` says that the design is the golden answer itself, its trace is the last
line of the output. The results go to the grader over the sandbox's channel; nothing that a design prints does.
"""

import json
import os
import re
import resource
import subprocess
import sys

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
    plan = {**object_of("judge.json"), **object_of("plan.json")}
    sets = object_of("trace.json")
    valid = plan["judging"]["valid"]
    for number, each in enumerate(sets):
        each["stimuli"] = text_of(f"stimuli{number}")
        each["valid"] = valid
    options = ["-I", "/code/rtl"]
    for folder in plan["include"]:
        options += ["-I", f"/code/{folder}"]
    for name, value in plan["define"].items():
        options.append(f"-D{name}={value}")
    answer = present(plan, "/code/")
    design = tracing.Design(compiled(plan) + answer, options)
    if plan["role"] == "golden":
        result = expect(design, sets, plan)
        print("\n" + json.dumps(result))
        return 0
    if not answer:
        return refuse("the answer has no file that could be simulated")
    if not os.path.exists(SOURCE + "expected"):
        return judge_by_proof(design, plan, plan["why"])
    return judge(design, sets, plan)


def object_of(name):
    """A file of JSON of the grader's."""
    return json.loads(read(SOURCE + name))


def text_of(name):
    """A compressed file of the grader's, as bytes."""
    return tracing.unpacked(read(SOURCE + name))


def compiled(plan):
    return [f"/code/{path}" for path in plan["compiled"]]


def present(plan, place):
    """The design's HDL files below a folder that exist."""
    paths = []
    for path in plan["design"]:
        full = place + path
        if path.endswith((".v", ".sv")) and os.path.isfile(full):
            paths.append(full)
    return paths


def compared(golden, other, each):
    """The comparison of two traces that the problem asks for."""
    valid = each["valid"]
    if not valid:
        return comparing.Comparison(golden, other, each["outputs"], each["first"])
    lines = each["stimuli"].split(b"\n")
    steps = [int(line, 16) for line in lines]
    return comparing.InOrder(golden, other, each, steps, valid)


# The golden answer


def expect(design, sets, plan):
    """The golden answer's traces: {why} or {sets: numbers of those that can judge, expected}. With `proof` in the
    plan a proof that it equals itself stands in for a trace."""
    good = {}
    for number, each in enumerate(sets):
        said, compiles, _ = design.compile({number: each["stimuli"]})
        why = f"it does not compile: {first_errors(said)}"
        if compiles:
            why = trace_weakness(design, number, each)
        if why and number == 0:
            return proof_instead(design, plan, why)
        if not why and not NO_PARAMETER.search(said):
            good[number] = each["stimuli"]
    design.compile(good)
    traces, _ = design.simulate(good)
    text = b"\n\n".join(b"\n".join(lines) for lines in traces)
    return {"why": "", "sets": list(good), "expected": tracing.packed(text)}


def proof_instead(design, plan, why):
    """What stands in for the golden answer's traces, which cannot judge: see `expect`."""
    if not plan["proof"]:
        return {"why": why}
    proof = prove(design, plan, design.files)
    if proof["outcome"] == "equal":
        return {"why": why, "proved": True}
    return {"why": f"{why}; not proved: {proof['why']}"}


def trace_weakness(design, number, each):
    """Why the golden answer's trace cannot judge; empty if it can."""
    (lines,), ended = design.simulate([number])
    outputs = each["outputs"]
    clocks = each["clocks"]
    first = each["first"]
    valid = each["valid"]
    steps = each["stimuli"].count(b"\n") + 1
    done = len(lines)
    if done < steps:
        return f"its simulation ended after {done} of {steps} inputs{ended}"
    if why := comparing.weakness(lines, outputs, first):
        return why
    bits = sum(width for _, width in each["inputs"])
    tried_all = not clocks and steps >= 1 << bits
    kinds = set(lines[first:])
    if len(kinds) == 1 and not tried_all:
        return "its outputs never change"
    if not valid:
        return ""
    if valid not in dict(outputs) or not clocks:
        return f"it has no clock, or no output {valid} that could mark values"
    queues = compared(lines, lines, each).queues(lines)
    values = sum(len(queue) for _, queue in queues)
    if values < comparing.LEAST_VALUES:
        return f"its output {valid} is 1 in {values} cycles only"
    return ""


# The answer


def judge(design, sets, plan):
    """Compare the answer with the golden one, and report each output in each group of steps as a test."""
    stimuli = {number: each["stimuli"] for number, each in enumerate(sets)}
    said, compiles, command = design.compile(stimuli)
    failed = ""
    usual = {at: stimuli[at] for at in stimuli if not at or sets[at].get("own")}
    if not compiles and len(usual) < len(sets):
        failed = f", since it does not compile: {first_errors(said)}"
        stimuli = usual
        said, compiles, command = design.compile(stimuli)
    if not compiles and plan["proof"] == "undecided":
        return judge_by_proof(design, plan, first_errors(said))
    report_build(command, said, compiles)
    if not compiles:
        return refuse(said)
    if foreign := design.foreign():
        return refuse(f"the answer includes {foreign}, which is not a file of the problem")
    traces, ended = design.simulate(stimuli)
    traces = dict(zip(stimuli, traces, strict=True))
    tests = []
    expected = text_of("expected").split(b"\n\n")
    if sets[-1].get("own"):
        expected.append(text_of("expected_own"))
    for number, each in enumerate(sets):
        lines = traces.get(number, [])
        why = ended if number in traces else failed
        golden = expected[number].split(b"\n")
        tests += results(compared(golden, lines, each), each, why)
    more = []
    if plan["proof"] == "passes" and all(step is None for step, _, _ in tests):
        more.append(proof_test(design, sets[0], plan))
    return attest(tests, *more, settle=sets[0]["settle"])


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


def results(comparison, each, why):
    """One test for each output and group of steps: (step of the first difference or None, name, message). Inputs
    that the answer's own numbers made count only where they show a difference, so that no code adds a pass, and
    show no golden value, since the answer could choose where."""
    first = comparison.first_differences()
    steps = each["stimuli"].split(b"\n")
    tests = []
    for name, _ in each["outputs"]:
        for group in comparison.groups():
            title = f"{name}, phase {group + 1}{each['with']}"
            if (name, group) not in first:
                if not each.get("own"):
                    tests.append((None, title, ""))
                continue
            step, message = first[name, group]
            if message.startswith("is missing"):
                message += why
            elif each.get("own"):
                message = "differs"
            words = comparing.with_inputs(message, step, int(steps[step], 16), each["inputs"])
            tests.append((step, title, words))
    return sorted(tests, key=lambda result: result[0] or 0)


def first_errors(said):
    lines = said.splitlines() or ["no output"]
    errors = [line for line in lines if "error" in line or "sorry" in line]
    words = "; ".join(errors[:3]) or lines[0]
    return words[:400]


def refuse(why):
    print(why[-4000:])
    return 1


# The proof


def judge_by_proof(design, plan, why):
    """Pass the answer only if it is proved equal, since a simulation gives no result. What Icarus cannot
    read must be legal for slang: Yosys' own front end accepts more."""
    by_slang = not design.is_read(plan["top"])
    proof = prove(design, plan, golden_files(plan), by_slang)
    if proof["outcome"] == "equal":
        message = f"proved equal; not simulated: {why}"
        return attest([], entry("proof", "passed", message))
    if proof["outcome"] == "different":
        message = f"differs {in_words(proof['trace'])}"
        return attest([], entry("proof", "failed", message))
    said = f"not simulated: {why}\nerror: not proved equal to the golden answer: {proof['why']}"
    report_build(["proof"], said, False)
    return refuse(said)


def proof_test(design, each, plan):
    """The result of a proof after a simulation that showed no difference, as a test: it fails only if the
    simulator confirms the difference."""
    golden = golden_files(plan)
    proof = prove(design, plan, golden)
    if proof["outcome"] == "equal":
        return entry("proof", "passed", "proved equal")
    why = proof["why"]
    if proof["outcome"] == "different":
        sides = (compiled(plan) + golden, design.files)
        designs = [tracing.Design(files, design.options) for files in sides]
        if difference := replayed(designs, each, proof):
            inputs = in_words(proof["trace"])
            return entry("proof", "failed", f"{difference}; {inputs}")
        why = "a difference that the simulator does not show"
    return entry("proof", "skipped", f"not proved: {why}")


def replayed(designs, each, proof):
    """The first output that differs at the end of a proof's trace, in words; None if there is none."""
    trace = proof["trace"]
    clock = proof["clock"]
    steps = comparing.replay_steps(each["inputs"], trace, each["clocks"], clock)
    stimuli = b"\n".join(b"%x" % step for step in steps)
    traces = []
    for design in designs:
        _, compiles, _ = design.compile({0: stimuli})
        lines = []
        if compiles:
            (lines,), _ = design.simulate([0])
        traces.append(lines)
    # The property holds until the last cycle.
    planned = len(steps)
    first = planned - planned // max(1, len(trace))
    comparison = comparing.Comparison(*traces, each["outputs"], first)
    differences = comparison.first_differences()
    for (name, _), (_, said) in sorted(differences.items()):
        return f"{name} {said}"
    return None


def in_words(trace):
    """The shortest inputs that tell two designs apart, at most the last ones of them."""
    steps = map(comparing.assignments, trace[-MOST_STEPS_TOLD:])
    return f"after the inputs {'; '.join(steps)}"


def golden_files(plan):
    """Unpack the golden answer's files to a folder that the answer could not name; none where nothing is proved."""
    if plan["unproved"]:
        return []
    folder = f"/code/rundir/{os.urandom(12).hex()}/"
    files = json.loads(text_of("golden"))
    for path, text in files.items():
        place = folder + path
        os.makedirs(os.path.dirname(place), exist_ok=True)
        tracing.write(place, text.encode())
    return present(plan, folder)


def prove(design, plan, golden, by_slang=False):
    """What `prover.py` says of the design and the golden answer's files: {outcome, why, trace, clock}."""
    if plan["unproved"]:
        return {"outcome": "undecided", "why": plan["unproved"]}
    # No include is left: the proof makes copies of the golden answer, which the answer could name.
    text, why = design.preprocess()
    if why:
        return {"outcome": "undecided", "why": why}
    if golden is not design.files:
        golden = compiled(plan) + golden
    spec = {
        **plan["spec"],
        "values": {},
        "golden": golden,
        "other": [text],
        "top": plan["top"],
        "by_slang": by_slang,
    }
    tracing.write("spec.json", json.dumps(spec).encode())
    done = subprocess.run(
        [sys.executable, SOURCE + "prover.py", "spec.json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: limit(max(READING_CPU_S, spec["cpu_s"])),
    )
    why = f"the proof ended with code {done.returncode}"
    proof = {"outcome": "undecided", "why": why}
    said = done.stdout
    try:
        line = said.splitlines()[-1]
        proof.update(json.loads(line))
    except (IndexError, ValueError):
        print(said.decode(errors="replace")[-2000:])
    if proof["outcome"] == "bounded":
        proof["why"] = f"proved for {proof['depth']} cycles, not further"
    return proof


def limit(cpu_s):
    """Limit a process of the proof, as far as the sandbox has not done so."""
    limits = {resource.RLIMIT_CPU: int(cpu_s) + 1, resource.RLIMIT_AS: PROOF_BYTES}
    for kind, most in limits.items():
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(kind, (most, most))


# The report


def entry(name, status, message, ns=""):
    """A test as the grader gets it. `ns`: simulated time in nanoseconds, for a viewer of waves."""
    return {
        "name": name,
        "status": status,
        "message": message[:MOST_WORDS],
        "file": "/src/judge.py",
        "ns": ns,
    }


def attest(results, *more, settle=0):
    """Report all results to the grader, the differences first, and further tests. `settle`: see bench.py."""
    failed, passed = [], []
    for step, name, message in results:
        if step is None:
            passed.append(entry(name, "passed", message))
        else:
            # Just before the next inputs are applied.
            ns = f"{(step + 2) * settle - 0.001:.3f}"
            failed.append(entry(name, "failed", message, ns))
    reports = [*failed, *passed, *more]
    gate.witness.report_tests(reports)
    failed += [report for report in more if report["status"] == "failed"]
    for report in failed[:3]:
        name, message = report["name"], report["message"]
        print(f"{name}: {message}")
    total = len(reports)
    print(f"{total - len(failed)} of {total} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
