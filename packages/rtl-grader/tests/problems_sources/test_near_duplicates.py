"""Near-duplicates are never on both sides of the split."""

import random

import pytest

from rtl_core.starter import starter_problems
from rtl_core.starter.source import StarterSource
from rtl_grader.problems.near_duplicates import BY_DESIGN, BY_ID, Library, pairs, separate
from rtl_grader.problems.sources import load_problems
from rtl_grader.problems.sources.cvdp import CvdpSource
from rtl_grader.problems.sources.rtllm import RtllmSource
from rtl_grader.problems.sources.verilog_eval import VerilogEvalSource
from tests.nouns import a_problem

TEXT = """\
Design a synchronous first-in first-out buffer with a depth of sixteen words of eight bits. It has a write port with an
enable, a read port with an enable, and flags for full and empty. A write when full and a read when empty change nothing.
The read data are registered and appear one cycle after the read enable. The reset is synchronous and active high."""


def make(identity, prompt, golden=None):
    return a_problem(
        id=identity, prompt=prompt, golden={"rtl/m.sv": golden} if golden else None
    )


def test_only_a_reworded_twin_moves_to_the_held_out_side():
    twin = make("twin", TEXT.replace("sixteen", "32").replace("Design", "Write"))
    other = make(
        "other",
        "Design a priority arbiter with eight requests and a one-hot grant, lowest bit first.",
    )
    left, out, moved = separate([other, twin], [make("held", TEXT)])
    assert [p.id for p in left] == ["other"]
    assert [p.id for p in out] == ["held", "twin"]
    assert [(m.moved, m.like, m.by) for m in moved] == [("twin", "held", "text")]
    assert 0.8 <= moved[0].overlap < 1
    assert "twin is held out too" in str(moved[0])


def test_a_whole_chain_of_twins_moves():
    second = TEXT.replace("sixteen", "32")
    third = second.replace("active high", "active low").replace("registered", "stored")
    _, out, moved = separate(
        [make("third", third), make("second", second)], [make("first", TEXT)]
    )
    assert {p.id for p in out} == {"first", "second", "third"}
    assert len(moved) == 2


def test_every_pair_above_the_limit_is_found_whatever_the_texts_share():
    rng = random.Random(0)
    words = [f"word{chr(97 + i)}{chr(97 + j)}" for i in range(20) for j in range(20)]
    common = rng.choices(words, k=40)

    def reworded(text, changes):
        return [
            rng.choice(words) if place in changes else word for place, word in enumerate(text)
        ]

    own = [[*common, *rng.choices(words, k=40)] for _ in range(40)]
    changed = [
        reworded(text, {*rng.sample(range(80), number % 5)}) for number, text in enumerate(own)
    ]
    train, held = (
        [make(f"{side}{i}", " ".join(text)) for i, text in enumerate(texts)]
        for side, texts in (("t", changed), ("h", own))
    )
    (measure, _) = BY_ID
    library = Library()
    runs = {problem.id: set(library.runs(measure, problem)[0]) for problem in (*train, *held)}
    like = {
        one.id: max(
            len(runs[one.id] & runs[two.id]) / len(runs[one.id] | runs[two.id]) for two in held
        )
        for one in train
    }
    found = {pair.moved: pair.overlap for pair in pairs(train, held, BY_ID)}
    assert found == {
        name: overlap for name, overlap in like.items() if overlap >= measure.limit
    }
    assert 10 < len(found) < 40


def test_different_words_around_one_golden_answer_are_found():
    golden = (
        "module m(input clk);\n"
        + "".join(f"  wire [7:0] w{i} = clk + {i};\n" for i in range(20))
        + "endmodule\n"
    )
    other = make("b", "Complete the adders below.", "// other\n" + golden)
    found = pairs([make("a", "Write it.", golden)], [other], BY_ID)
    assert [(p.moved, p.by) for p in found] == [("a", "golden answer")]


def masked(identity, golden, part):
    frame = golden.replace(part, "[MASKED]")
    prompt = f"Write what stands at `[MASKED]`.\n```\n{frame.rstrip()}\n```"
    files = {"golden": {"rtl/m.sv": golden}, "frame": {"rtl/m.sv": frame}}
    return a_problem(id=identity, prompt=prompt, **files)


def sums(low):
    lines = "".join(f"  assign y[{bit}] = a[{bit + low}] ^ a[{bit}];\n" for bit in range(40))
    notes = "".join(f"  // note {word} on the sums\n" for word in TEXT.split())
    return f"module m(input [99:0] a, output [39:0] y);\n{notes}{lines}endmodule\n"


def test_tasks_with_masks_in_one_file_are_compared_as_the_whole_file_once():
    golden, library = sums(1), Library()
    first, second = masked("a", golden, "a[3] ^ a[2]"), masked("b", golden, "a[9] ^ a[8]")
    for measure in BY_DESIGN:
        runs, others = (library.runs(measure, problem) for problem in (first, second))
        assert runs
        assert [id(one) for one in runs] == [id(other) for other in others]
    body = golden[golden.index("  assign") : golden.index("endmodule")]
    other = sums(20)
    other_body = other[other.index("  assign") : other.index("endmodule")]
    whole, different = masked("c", golden, body), masked("d", other, other_body)
    assert whole.prompt == different.prompt
    assert [pair.moved for pair in pairs([whole, different], [first], BY_DESIGN)] == ["c"]


def test_starter_problems_sound_alike_but_keep_their_own_split():
    train, heldout = starter_problems("train", 60, 0), starter_problems("heldout", 60, 0)
    assert separate(train, heldout) == (train, heldout, [])


@pytest.mark.slow
def test_split_by_id_keeps_problems_by_fingerprint_and_moves_near_duplicates(data):
    sources = (
        StarterSource(kind="starter", train=18, heldout=18),
        CvdpSource(kind="cvdp", path=data / "cvdp"),
        VerilogEvalSource(kind="verilog-eval", path=data / "verilog-eval"),
        RtllmSource(kind="rtllm", path=data / "RTLLM"),
    )
    loaded = load_problems(sources, 0, "id")
    assert {p.source for p in loaded.train} - {"cvdp"} == {
        "starter",
        "cvdp-agentic",
        "verilog-eval",
        "rtllm",
    }
    moved = {m.moved for m in loaded.moved}
    assert moved, "the published agentic set has twins"
    for problem in loaded.every:
        if problem.source != "starter" and problem.id not in moved:
            assert (int(problem.fingerprint[:8], 16) / 2**32 < 0.2) == (
                problem in loaded.heldout
            )
    assert not pairs(loaded.train, loaded.heldout, BY_ID)
    assert {"cvdp_agentic_fixed_arbiter_0001", "cvdp_copilot_lfsr_0001"} <= {
        p.id for p in loaded.every
    }


def test_an_id_in_two_files_of_a_folder_is_used_once_with_its_golden_answer(data):
    problems = load_problems([CvdpSource(kind="cvdp", path=data / "cvdp")], 0).every
    by_id = {problem.id: problem for problem in problems}
    assert len(by_id) == len(problems)
    assert by_id["cvdp_agentic_fixed_arbiter_0001"].golden is not None
