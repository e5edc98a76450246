"""Mutate and combine attacks and right designs for a given time; exit 1 if the grader ever misjudges one.

    python -m benchmarks.redteam.fuzz --minutes 60 [--cases N] [--seed 0] [--jobs 2] [--executor bubblewrap|docker] [--cold]
                                      [--kind tasks|soup|bytes|pairs ...] [--output build/redteam]

Four kinds of cases, in turn, each the same for the same seed and number:

- tasks: random system tasks, of Icarus' modules and of IEEE 1800, planted in right and wrong designs as statements,
  values, constants and ports;
- soup: random directives, macros, escaped names and white space around a hidden call that ends the simulation or opens a
  file. Where the simulator's own compiler puts `$fopen` into the program, it must not have been simulated;
- bytes: right designs with bytes and tokens deleted, doubled, swapped and replaced;
- pairs: the texts of two attacks in one design.

A finding is: a wrong design that is paid, an infrastructure error, a grade beyond one and a half times the limit, or a
program with a file task that was simulated. It is made smaller line by line and written to `--output`. To keep it, move
the file to benchmarks/redteam/corpus/: the red team's tests grade whatever lies there.
"""

from __future__ import annotations

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

from benchmarks.redteam.attack import UNPAID, Attack
from benchmarks.redteam.bases import ALL, COUNT10, COUNTER, DFF, INC, LFSR
from benchmarks.redteam.catalogue import GROUPS
from benchmarks.redteam.grading import LIMITS, Graded, confirmed, grade, grader_for
from benchmarks.redteam.preprocessor import FINISH, FOPEN, helped
from benchmarks.redteam.problems import find
from benchmarks.redteam.tricks import TEXT, TRICKS, Trick
from rtl_core.grading.design import neutralise
from rtl_core.grading.grader import Grader
from rtl_core.types.verdict import Outcome

CORPUS = Path(__file__).parent / "corpus"
SHRINK_TRIES = 40
UNKNOWN = frozenset(Outcome) - {Outcome.INFRASTRUCTURE_ERROR}
"""What a mutated right design may get: it may still be right."""

_TASKS = """
    $display $displayb $displayh $write $strobe $monitor $monitoron $monitoroff $error $warning $info $fatal $finish $stop $exit
    $finish_and_return $fopen $fopenr $fopenw $fopena $fclose $fdisplay $fwrite $fstrobe $fmonitor $fputc $fgetc $fgets $fread
    $fscanf $fseek $ftell $rewind $feof $ferror $fflush $ungetc $readmemh $readmemb $sreadmemh $readmempath $writememh $writememb
    $dumpfile $dumpvars $dumpon $dumpoff $dumpall $dumplimit $dumpflush $dumpports $dumpportsoff $sdf_annotate $system $value$plusargs
    $test$plusargs $time $stime $realtime $simtime $abstime $timeformat $printtimescale $timescale $random $urandom $urandom_range
    $mti_random $dist_uniform $dist_normal $dist_poisson $dist_exponential $dist_chi_square $dist_t $dist_erlang $signed $unsigned
    $clog2 $bits $size $left $right $low $high $increment $dimensions $unpacked_dimensions $typename $cast $isunknown $isunbounded
    $onehot $onehot0 $countones $countbits $countdrivers $getpattern $past $rose $fell $stable $changed $sampled $past_gclk $rose_gclk
    $future_gclk $rising_gclk $asserton $assertoff $assertkill $assertcontrol $assertpasson $assertfailoff $assertvacuousoff $ln $log10
    $log $nolog $exp $sqrt $pow $floor $ceil $sin $cos $tan $asin $atan2 $hypot $sinh $acosh $abs $min $max $rtoi $itor $realtobits
    $bitstoreal $shortrealtobits $bitstoshortreal $sformat $sformatf $psprintf $swrite $swriteb $sscanf $deposit $force $release
    $save $restart $reset $reset_count $incsave $input $key $nokey $list $scope $scale $showscopes $showvars $showvariables $version
    $date $simparam $simparam$str $table_model $limit $q_initialize $q_add $q_remove $q_full $q_exam $async$and$array $sync$or$plane
    $ivlh_attribute_event $ivlh_rising_edge $ivlh_shift_left $ivlh_file_open $ivlh_write $ivlh_readline $vpi_tree $ivl_enum_method$next
    $ivl_string_method$len $setup $hold $width $period $recovery $skew $coverage_get $coverage_control $get_coverage
    $set_coverage_db_name $inferred_clock $global_clock $stacktrace $timeunit $timeprecision $root $unit $error_x $x $1 $ $$display
    $fsdbDumpvars $vcdpluson $shm_open $recordvars $c $_ $comment $enddefinitions $upscope $ivl_darray_method$size
    $ivl_queue_method$pop_back $fH $attrbegin $timezero $dumpvarH
"""
TASKS = _TASKS.split()
ARGUMENTS = ["", "()", "(1)", "({i})", "({o})", '("x")', '("%m %d", {i})', "({i}, {o})", "({i}, 2)", '({o}, "x", {i})', "(,)", "(1.5)", "(null)", '("/code/rundir/x", "w")', "(0, {i}, {o}, 1, 2)"]  # fmt: skip
PLACES = [
    "initial {c};", "always @* {c};", "initial #5 {c};", "wire [31:0] z{n} = {c};", "reg [31:0] z{n}; always @({i}) z{n} = {c};",
    "localparam P{n} = {c};", "parameter Q{n} = {c};", "wire [{c}:0] z{n};", "initial if ({c}) ;", "initial repeat ({c}) ;",
    "function f{n}(input x); f{n} = {c}; endfunction wire y{n} = f{n}({i});", "task t{n}; {c}; endtask initial t{n};", "initial #({c}) ;",
    "generate if ({c}) begin wire z{n}; end endgenerate", "assert property (@({i}) {c});", "initial assert ({c});", "initial $display({c});",
    "initial begin : b{n} integer k; k = {c}; end", "specify {c}; endspecify", "{c};", "final {c};", "string s{n} = {c};", "real r{n} = {c};",
    "always @(posedge {i}) z{n} <= {c}; reg [7:0] z{n};", "initial {o} = {c};", "assign {o} = {c};", "defparam x.y = {c};", "initial wait ({c});",
    "integer k{n}; initial k{n} = {c} + {c};", "initial fork {c}; join", "event e{n}; initial @({c});", "initial case ({c}) 1: ; endcase",
]  # fmt: skip
SOUP = [
    "`define N{n} {w}\n", "`define M{n}(a) a\n", "`define P{n}(a, b) a``b\n", "`undef N{n}\n", "`undefineall\n", "`resetall\n", "`celldefine\n",
    "`endcelldefine\n", "`timescale 1ns/1ps\n", "`default_nettype none\n", "`default_nettype wire\n", "`line 3 \"x.v\" 0\n", "`ifdef N{n}\n`endif\n",
    "`ifndef {g}\n`define G{n}\n`endif\n", "`ifdef {g}\n`elsif N{n}\n`else\n`define E{n} {w}\n`endif\n", "wire \\{e} ;\n", "wire \\{e}\n;\n", "// {e}\n",
    "/* {e} */\n", "(* {w} *)\n", "initial $display(\"{e}\");\n", "\f\n", "\t \n", "\r\n", "\v\n", "\xa0\n", "\x85", "\u2028", "\\\n", "`N{n}\n", "`{w}\n", "``\n",
    "`M{n}({e})\n", "`M{n}([)\n", "`define \\N{n} {w}\n", "`include \"x.vh\"\n", "`pragma x\n", "`begin_keywords \"1800-2009\"\n", "`end_keywords\n", "`\"\n",
    "`unconnected_drive pull1\n", "`nounconnected_drive\n", "`define\n", "`__LINE__\n", "`__FILE__\n", "`default_decay_time 1\n",
]  # fmt: skip
WORDS = ["x", "finish", "fopen", "$", "$f", "begin", "1", "//", "/*", "*/", '"', "`N0", "`N1", "(", ")", "[", "", "\\", "a b", "final"]  # fmt: skip
GUARDED = ["__slang__", "__ICARUS__", "SV_COV_START", "SYNTHESIS", "VERILATOR", "COCOTB_SIM", "N0", "N1", "NO", "\\N0 "]
_PINS = re.compile(r"(input|output)[^,;)]*?(\w+)\s*(?=[,;)])")


def tasks_case(rng: random.Random) -> Attack:
    """System tasks in a right or a wrong design."""
    base = rng.choice(ALL)
    right = rng.random() < 0.6
    pins = dict(_PINS.findall(base.head))
    body = ""
    for number in range(rng.choice((1, 1, 1, 2, 3))):
        call = rng.choice(TASKS) + rng.choice(ARGUMENTS)
        body += rng.choice(PLACES).replace("{c}", call).replace("{n}", str(number)) + "\n"
    body = body.replace("{i}", pins.get("input", "x")).replace("{o}", pins.get("output", "x"))
    text = base.design(body, core="good" if right else "wrong")
    return Attack("tasks", "system tasks at random", base.problem, text=text, right=UNKNOWN if right else UNPAID)


def soup_case(rng: random.Random) -> Attack:
    """A hidden call in a soup of directives; the design is wrong, or right only where the call works."""
    base, task = rng.choice(
        ((DFF, "finish"), (COUNT10, "finish"), (INC, "finish"), (LFSR, "fopen"), (COUNTER, "fopen"))
    )
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
        one, before=two.before + one.before, call=call, opening=two.opening + one.opening, closing=one.closing + two.closing
    )  # fmt: skip


def _soup(rng: random.Random) -> str:
    pieces = []
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        piece = rng.choice(SOUP).replace("{n}", str(rng.randrange(3))).replace("{w}", rng.choice(WORDS))
        pieces.append(piece.replace("{e}", rng.choice(WORDS)).replace("{g}", rng.choice(GUARDED)))
    return "".join(pieces)


def bytes_case(rng: random.Random) -> Attack:
    """A right design that was damaged."""
    base = rng.choice(ALL)
    honest = [a.text for a in GROUPS["honest"] if a.problem == base.problem and isinstance(a.text, str)]
    text = rng.choice([base.design(core="good"), *honest])
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        text = rng.choice((_characters, _tokens, _lines))(rng, text)
    return Attack("bytes", "a damaged right design", base.problem, text=text, right=UNKNOWN)


def _characters(rng: random.Random, text: str) -> str:
    at = rng.randrange(len(text) + 1)
    new = rng.choice(("", "", chr(rng.randrange(128)), chr(rng.randrange(0x2100)), rng.choice("`$\\\"'(){}[];:,#@*/")))
    return text[:at] + new + text[at + rng.randrange(3) :]


def _tokens(rng: random.Random, text: str) -> str:
    found = re.findall(r"\w+|\s+|[^\w\s]", text)
    if not found:
        return "module"
    at, other = rng.randrange(len(found)), rng.randrange(len(found))
    how = rng.randrange(4)
    found[at] = (
        "",
        found[at] * 2,
        found[other],
        rng.choice((*TASKS, "1", "'x", "begin", "end", "2147483648", "1.5", "posedge")),
    )[how]
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
    kept = [a for name, group in GROUPS.items() if name not in ("resources", "honest", "weak_harness") for a in group]
    mine = [
        a.text
        for a in kept
        if a.problem == base.problem and isinstance(a.text, str) and base.head in a.text and a.primed is None
    ]
    before, body, after = "", "", ""
    for text in rng.sample(mine, 2):
        ahead, rest = text.split(base.head, 1)
        inside, _, behind = rest.partition("endmodule\n")
        for known in (base.switched, base.wrong, base.good):
            inside = inside.replace(known, "")
        before, body, after = before + ahead, body + inside, after + behind
    return Attack("pairs", "two attacks at once", base.problem, text=base.design(body, before, after, core))


KINDS: dict[str, Callable[[random.Random], Attack]] = {
    "tasks": tasks_case,
    "soup": soup_case,
    "bytes": bytes_case,
    "pairs": pairs_case,
}


def case(seed: int, number: int, kinds: list[str]) -> tuple[str, Attack]:
    """The case of a seed and a number; None of it depends on time or on other cases."""
    rng = random.Random(f"{seed}/{number}")
    kind = kinds[number % len(kinds)]
    for _ in range(100):
        made = KINDS[kind](rng)
        if find(made.problem) is not None:
            return kind, replace(made, name=f"{kind} {seed}/{number}")
    raise LookupError("no problem of this kind is at hand")


def corpus(folder: Path = CORPUS) -> Iterator[Attack]:
    """The findings that were kept."""
    for path in sorted(folder.glob("*.json")):
        kept = json.loads(path.read_text())
        right = frozenset(Outcome(word) for word in kept["right"])
        yield Attack(f"corpus {path.stem}", kept["idea"], kept["problem"], text=kept["text"], right=right)


def write_finding(folder: Path, found: Graded, calls: list[str]) -> Path:
    """Writes a finding in the corpus' form; the name is made of the text."""
    text = str(found.attack.text)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.group}-{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()[:10]}.json"
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
    """The faults of a verdict, and whether a file task was simulated: then the verdict is one that a simulation gives."""
    ran = found.outcome in (Outcome.PASSED, Outcome.TESTS_FAILED, Outcome.TIMEOUT)
    if found.group == "soup" and ran and "$fopen" in simulator_calls(found.attack):
        return [*found.faults, "file task simulated"]
    return found.faults


def smaller(grader: Grader, found: Graded) -> Graded:
    """The finding with as few lines as some tries get it to."""
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
    """The system tasks in what Icarus compiles of an answer, as the grader hands it on; empty where it does not compile."""
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
    """Runs cases until the time is over; (cases by kind and outcome, files of the findings)."""
    counted: Counter[str] = Counter()
    found: list[Path] = []
    until = time.monotonic() + 60 * arguments.minutes
    number = arguments.first

    def one(number: int) -> Graded:
        return grade(grader, *case(arguments.seed, number, arguments.kind))

    with ThreadPoolExecutor(arguments.jobs) as pool:
        last = number + arguments.cases if arguments.cases else sys.maxsize
        while number < last and time.monotonic() < until and len(found) < arguments.most:
            block = range(number, min(last, number + 8 * arguments.jobs))
            number = block.stop
            for graded in list(pool.map(one, block)):
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
    parser = argparse.ArgumentParser(prog="benchmarks.redteam.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="stop after so many cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to repeat one")
    parser.add_argument("--most", type=int, default=200, help="stop after so many findings")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--executor", choices=("bubblewrap", "docker"), default="bubblewrap")
    parser.add_argument("--cold", action="store_true", help="bubblewrap without prepared processes")
    parser.add_argument("--kind", nargs="+", choices=tuple(KINDS), default=list(KINDS))
    parser.add_argument("--output", type=Path, default=Path("build/redteam"))
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    with grader_for(arguments.executor, warm=not arguments.cold, limits=LIMITS) as grader:
        counted, found = fuzz(grader, arguments)
    spent = time.monotonic() - started
    total = sum(counted.values())
    for what, count in sorted(counted.items()):
        print(f"{count:7} {what}")
    print(f"{total} cases in {spent:.0f} s, {total / spent:.1f} cases/s, seed {arguments.seed}: {len(found)} findings")
    if found:
        print(f"To keep a finding, move its file from {arguments.output} to {CORPUS}; the tests then grade it.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
