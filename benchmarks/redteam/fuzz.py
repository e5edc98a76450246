"""Mutate and combine attacks and right designs for a given time; exit with 1 if the grader ever misjudges one.

    python -m benchmarks.redteam.fuzz --minutes 60 [--cases N] [--seed 0] [--jobs 2]
        [--executor bubblewrap|docker] [--cold] [--kind tasks|soup|bytes|pairs ...] [--output build/redteam]

There are four kinds of cases, in turn; a case is determined by its seed and number:

- tasks: random system tasks, of Icarus' modules and of IEEE 1800, in right and wrong designs, as
  statements, values, constants and ports;
- soup: random directives, macros, escaped names and white space around a hidden call that ends the
  simulation or opens a file. If the simulator's own compiler puts `$fopen` into the program, it must not
  have been simulated;
- bytes: right designs with bytes and tokens deleted, repeated, swapped and replaced;
- pairs: the texts of two attacks in one design.

A finding is a wrong design that is paid, an infrastructure error, a grade beyond one and a half times the
limit, or a simulated program with a file task. It is reduced line by line and written to `--output`. To
keep it, move the file to benchmarks/redteam/corpus/, whose files the red team's tests grade.
"""

import argparse
import hashlib
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.common import options
from benchmarks.redteam.attack import BASES, COUNT10, COUNTER, DFF, INC, LFSR, UNPAID, Attack
from benchmarks.redteam.catalogue import GROUPS
from benchmarks.redteam.grading import LIMITS, Graded, confirmed, grade, grader_for
from benchmarks.redteam.problems import find
from benchmarks.redteam.tables import read
from benchmarks.redteam.tricks import FINISH, FOPEN, TEXT, TRICKS, Trick, helped
from rtl_grader.grading.grader import Grader
from rtl_grader.hdl.directives import neutralise
from rtl_grader.types.verdict import Outcome

CORPUS = Path(__file__).parent / "corpus"
SHRINK_TRIES = 40
MOST_FINDINGS = 200
UNKNOWN = frozenset(Outcome) - {Outcome.INFRASTRUCTURE_ERROR}
"""Outcomes allowed for a mutated right design, which may still be right."""

_FROM = read("fuzz")
TASKS, ARGUMENTS, PLACES = _FROM["TASKS"].split(), _FROM["ARGUMENTS"], _FROM["PLACES"]
SOUP, WORDS, GUARDED = _FROM["SOUP"], _FROM["WORDS"], _FROM["GUARDED"]
_PINS = re.compile(r"(input|output)[^,;)]*?(\w+)\s*(?=[,;)])")


def tasks_case(rng: random.Random) -> Attack:
    """System tasks in a right or a wrong design."""
    base = rng.choice([*BASES.values()])
    right = rng.random() < 0.6
    pins = dict(_PINS.findall(base.head))
    body = ""
    for number in range(rng.choice((1, 1, 1, 2, 3))):
        call = rng.choice(TASKS) + rng.choice(ARGUMENTS)
        body += rng.choice(PLACES).replace("{c}", call).replace("{n}", str(number)) + "\n"
    body = body.replace("{i}", pins.get("input", "x")).replace("{o}", pins.get("output", "x"))
    text = base.design(body, core="good" if right else "wrong")
    return Attack(
        "tasks",
        "system tasks at random",
        base.problem,
        text=text,
        right=UNKNOWN if right else UNPAID,
    )


def soup_case(rng: random.Random) -> Attack:
    """A hidden call in a soup of directives; the design is wrong, or right only if the call works."""
    ended, opened = (
        ((base, "finish") for base in (DFF, COUNT10, INC)),
        ((base, "fopen") for base in (LFSR, COUNTER)),
    )
    base, task = rng.choice((*ended, *opened))
    trick = rng.choice(TRICKS)
    if rng.random() < 0.4:
        trick = combined(trick, rng.choice((*TEXT, *TRICKS)))
    if rng.random() < 0.6:
        trick = helped(trick, task)
    before, body = trick.hide(task, (FINISH if task == "finish" else FOPEN).rstrip("\n"))
    core = "wrong" if task == "finish" else "switched"
    soup = [_soup(rng) for _ in range(3)]
    text = base.design(soup[1] + body + "\n" + soup[2], soup[0] + before, core=core)
    return Attack("soup", "a hidden call among directives", base.problem, text=text)


def combined(one: Trick, two: Trick) -> Trick:
    """Both tricks' surroundings, with the call of the first that has its own."""
    call = one.call if one.call != "$@T" else two.call
    return replace(
        one,
        before=two.before + one.before,
        call=call,
        opening=two.opening + one.opening,
        closing=one.closing + two.closing,
    )


def _soup(rng: random.Random) -> str:
    pieces = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        piece = (
            rng.choice(SOUP)
            .replace("{n}", str(rng.randrange(3)))
            .replace("{w}", rng.choice(WORDS))
        )
        pieces.append(
            piece.replace("{e}", rng.choice(WORDS)).replace("{g}", rng.choice(GUARDED))
        )
    return "".join(pieces)


def bytes_case(rng: random.Random) -> Attack:
    """A right design that was damaged."""
    base = rng.choice([*BASES.values()])
    honest = [
        a.text
        for a in GROUPS["honest"]
        if a.problem == base.problem and isinstance(a.text, str)
    ]
    text = rng.choice([base.design(core="good"), *honest])
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        text = rng.choice((_characters, _tokens, _lines))(rng, text)
    return Attack("bytes", "a damaged right design", base.problem, text=text, right=UNKNOWN)


def _characters(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    new = rng.choice(
        (
            "",
            "",
            chr(rng.randrange(128)),
            chr(rng.randrange(0x2100)),
            rng.choice("`$\\\"'(){}[];:,#@*/"),
        )
    )
    return text[:at] + new + text[at + rng.randrange(3) :]


def _tokens(rng: random.Random, text: str) -> str:
    found = re.findall(r"\w+|\s+|[^\w\s]", text)
    if not found:
        return "module"
    at, other = rng.randrange(len(found)), rng.randrange(len(found))
    how = rng.randrange(4)
    token = rng.choice((*TASKS, "1", "'x", "begin", "end", "2147483648", "1.5", "posedge"))
    found[at] = ("", found[at] * 2, found[other], token)[how]
    return "".join(found)


def _lines(rng: random.Random, text: str) -> str:
    lines = text.split("\n")
    at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
    if rng.random() < 0.5:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines.insert(at, lines[other])
    return "\n".join(lines)


def pairs_case(rng: random.Random) -> Attack:
    """What one attack adds to its design, in the design of another on the same problem."""
    base = rng.choice((LFSR, DFF, INC, COUNTER))
    core = rng.choice(("wrong", "switched"))
    kept = [
        a
        for name, group in GROUPS.items()
        if name not in ("resources", "honest", "weak_harness")
        for a in group
    ]
    mine = [
        a.text
        for a in kept
        if a.problem == base.problem
        and isinstance(a.text, str)
        and base.head in a.text
        and a.primed is None
    ]
    before, body, after = "", "", ""
    for text in rng.sample(mine, 2):
        ahead, rest = text.split(base.head, 1)
        inside, _, behind = rest.partition("endmodule\n")
        for known in ("switched", "wrong", "good"):
            inside = inside.replace(base.core(known), "")
        before, body, after = before + ahead, body + inside, after + behind
    return Attack(
        "pairs",
        "two attacks at once",
        base.problem,
        text=base.design(body, before, after, core),
    )


KINDS: dict[str, Callable[[random.Random], Attack]] = {
    "tasks": tasks_case,
    "soup": soup_case,
    "bytes": bytes_case,
    "pairs": pairs_case,
}


def case(seed: int, number: int, kinds: list[str]) -> tuple[str, Attack]:
    """The case of a seed and a number; it depends on neither time nor other cases."""
    rng = random.Random(f"{seed}/{number}")
    kind = kinds[number % len(kinds)]
    for _ in range(100):
        made = KINDS[kind](rng)
        if find(made.problem) is not None:
            return kind, replace(made, name=f"{kind} {seed}/{number}")
    raise LookupError("no problem of this kind is at hand")


def corpus(folder: Path = CORPUS) -> Iterator[Attack]:
    """The findings that are kept."""
    for path in sorted(folder.glob("*.json")):
        kept = json.loads(path.read_text())
        right = frozenset(Outcome(word) for word in kept["right"])
        yield Attack(
            f"corpus {path.stem}", kept["idea"], kept["problem"], text=kept["text"], right=right
        )


def write_finding(folder: Path, found: Graded, calls: list[str]) -> Path:
    """Write a finding in the corpus' format; its name is a hash of the text."""
    text = str(found.attack.text)
    folder.mkdir(parents=True, exist_ok=True)
    path = (
        folder
        / f"{found.group}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:10]}.json"
    )
    kept = {
        "idea": f"{found.attack.idea}; was {', '.join(faults_of(found))}",
        "problem": found.attack.problem,
        "right": sorted(found.attack.right),
        "text": text,
        "found": {
            "name": found.attack.name,
            "reasons": list(found.reasons)[:3],
            "wall_s": round(found.wall_s, 1),
            "calls": calls,
        },
    }
    path.write_text(json.dumps(kept, indent=1) + "\n")
    return path


def faults_of(found: Graded) -> list[str]:
    """The faults of a verdict, including that a file task was simulated."""
    ran = found.outcome in (Outcome.PASSED, Outcome.TESTS_FAILED, Outcome.TIMEOUT)
    if found.group == "soup" and ran and "$fopen" in simulator_calls(found.attack):
        return [*found.faults, "file task simulated"]
    return found.faults


def smaller(grader: Grader, found: Graded) -> Graded:
    """The finding, reduced to as few lines as a limited number of tries allows."""
    faults = set(faults_of(found))
    if "over time" in faults:
        return found
    best, left = found, SHRINK_TRIES
    size = max(1, str(best.attack.text).count("\n") // 2)
    while size and left:
        lines = str(best.attack.text).split("\n")
        for at in range(0, len(lines), size):
            shorter = "\n".join(lines[:at] + lines[at + size :])
            left -= 1
            again = grade(grader, best.group, replace(best.attack, text=shorter))
            if faults <= set(faults_of(again)):
                best = again
                break
            if not left:
                break
        else:
            size //= 2
    return best


def simulator_calls(attack: Attack) -> list[str]:
    """The system tasks in what Icarus compiles from an answer; empty if it does not compile."""
    with tempfile.TemporaryDirectory() as place:
        source = Path(place) / "design.sv"
        source.write_text(neutralise(str(attack.text)), errors="replace")
        command = ["iverilog", "-g2012", "-o", f"{place}/out", str(source)]
        try:
            subprocess.run(command, capture_output=True, timeout=10, check=False)
            program = (Path(place) / "out").read_text(errors="replace")
        except (OSError, subprocess.TimeoutExpired):
            return []
    return sorted(set(re.findall(r'%vpi_(?:call|func)[/\w.]* \d+ \d+ "([^"]+)"', program)))


def fuzz(grader: Grader, arguments: argparse.Namespace) -> tuple[Counter[str], list[Path]]:
    """Run cases until the time is over; return (number of cases by kind and outcome, files of the findings)."""
    counted: Counter[str] = Counter()
    found: list[Path] = []
    until = time.monotonic() + 60 * arguments.minutes
    number = arguments.first

    with ThreadPoolExecutor(arguments.jobs) as pool:
        last = number + arguments.cases if arguments.cases else sys.maxsize
        while number < last and time.monotonic() < until and len(found) < MOST_FINDINGS:
            block = range(number, min(last, number + 8 * arguments.jobs))
            number = block.stop
            attacks = [case(arguments.seed, n, arguments.kind) for n in block]
            for graded in list(pool.map(lambda attack: grade(grader, *attack), attacks)):
                graded = confirmed(grader, graded)
                counted[f"{graded.group}: {graded.outcome.value}"] += 1
                if faults := faults_of(graded):
                    small = smaller(grader, graded)
                    path = write_finding(arguments.output, small, simulator_calls(small.attack))
                    found.append(path)
                    print(
                        f"{', '.join(faults)}: {graded.attack.name} on {graded.attack.problem}: {path}",
                        flush=True,
                    )
    return counted, found


def main(argv: list[str] | None = None) -> int:
    parser = options(
        __doc__,
        minutes=5.0,
        seed=0,
        cases=(int, "number of cases after which to stop"),
        first=(0, "number of the first case, to repeat one"),
        jobs=2,
        executor="bubblewrap",
        cold=(False, "bubblewrap without prepared processes"),
        output=Path("build/redteam"),
    )
    parser.add_argument("--kind", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    with grader_for(arguments.executor, warm=not arguments.cold, limits=LIMITS) as grader:
        counted, found = fuzz(grader, arguments)
    spent = time.monotonic() - started
    total = sum(counted.values())
    for what, count in sorted(counted.items()):
        print(f"{count:7} {what}")
    print(
        f"{total} cases in {spent:.0f} s, {total / spent:.1f} cases/s, seed {arguments.seed}: {len(found)} findings"
    )
    if found:
        print(
            f"To keep a finding, move its file from {arguments.output} to {CORPUS}; then the tests grade it."
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
