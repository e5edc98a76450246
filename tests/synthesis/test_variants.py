"""Synthetic problems: their golden answers pass, the original's answer does not, and none is close to a held-out problem."""

import random
from collections import Counter

import pytest

from rtl_core.errors import ProblemError
from rtl_core.starter import starter_problems
from rtl_core.synthesis import keeping
from rtl_core.synthesis.variants import Change, adapter, variant
from rtl_grader.problems.cvdp import read_cvdp
from rtl_grader.types.answer import Answer
from rtl_grader.types.problem import Interface, InterfaceSource, Port
from rtl_grader.types.verdict import Outcome


@pytest.fixture(scope="module")
def counter():
    """A counter with a reset and a bus."""
    return next(p for p in starter_problems("train", 36, 0) if p.family == "counter")


def outcome(grader, problem, text):
    return grader.grade(problem, Answer(files={problem.targets[0]: text})).outcome


@pytest.mark.parametrize("kind", ["rename", "polarity", "bit order"])
def test_a_variant_accepts_its_own_answer_and_not_the_originals(grader, counter, kind):
    made = variant(counter, kind, random.Random(1))
    (target,) = made.targets
    assert made.id != counter.id
    assert made.interface.module != counter.interface.module
    assert made.prompt != counter.prompt
    assert outcome(grader, made, made.golden[target]) is Outcome.PASSED
    assert outcome(grader, made, counter.golden[target]) is Outcome.INTERFACE_MISMATCH
    if kind != "rename":  # the right names around the unchanged behaviour
        plain = counter.golden[target].replace(
            f"module {counter.interface.module}", f"module {made.interface.module}"
        )
        assert outcome(grader, made, plain) is Outcome.TESTS_FAILED


def test_a_repair_shows_a_near_miss_that_fails(grader, counter):
    made = variant(counter, "repair", random.Random(0))
    (target,) = made.targets
    assert made.category == "cid016"
    assert outcome(grader, made, made.golden[target]) is Outcome.PASSED
    assert outcome(grader, made, made.context[target]) is not Outcome.PASSED


def test_an_adapter_swaps_bits_and_levels_and_refuses_unknown_ports():
    ports = (
        Port(name="rst_n", direction="input", width=1),
        Port(name="y", direction="output", width=3),
    )
    old = Interface(module="m", ports=ports, source=InterfaceSource.GOLDEN)
    change = Change("n", {"y": "q"}, inverted=frozenset({"rst_n"}), reversed=frozenset({"y"}))
    text = adapter(old, change, "m", "n", outer_is_old=True)
    assert text.startswith("module m(input rst_n, output [2:0] y);")
    assert "assign adapted_0 = ~rst_n;" in text
    assert "assign y[0] = adapted_1[2];" in text
    assert ".q(adapted_1)" in text
    unknown = old.model_copy(update={"ports": (Port(name="a", direction="inout", width=1),)})
    with pytest.raises(ProblemError, match="cannot be adapted"):
        adapter(unknown, change, "m", "n", outer_is_old=True)


def test_kept_problems_are_validated_written_and_read_back(grader, counter, tmp_path):
    selection = keeping.Selection()
    made = keeping.candidates([counter], ["rename", "repair"], 4, 0, selection.dropped)
    broken = made[0][1].model_copy(
        update={
            "id": "broken",
            "prompt": "x",
            "golden": {counter.targets[0]: "module z; endmodule"},
        }
    )
    keeping.keep(
        [*made, ("rename", broken)],
        selection,
        train=[counter],
        heldout=[],
        grader=grader,
        mutants=1,
    )
    assert "broken" not in {p.id for p in selection.problems}
    assert selection.dropped["rename: validation finds it broken"] == 1
    assert len(selection.problems) >= 2
    keeping.write(selection.problems, tmp_path / "more.jsonl")
    again = read_cvdp(tmp_path / "more.jsonl")
    assert [p.fingerprint for p in again.problems] == [
        p.fingerprint for p in selection.problems
    ]
    assert [p.interface for p in again.problems] == [p.interface for p in selection.problems]
    assert not again.broken


def test_a_candidate_close_to_a_held_out_problem_is_dropped(counter):
    heldout = counter.model_copy(
        update={"id": "held", "source": "cvdp", "prompt": counter.prompt + " Thank you."}
    )
    twin = variant(counter, "repair", random.Random(0))
    dropped = Counter()
    assert keeping.far_enough([counter], [counter], [], dropped) == []
    near = twin.model_copy(update={"prompt": counter.prompt, "context": {}})
    assert keeping.far_enough([near], [], [heldout], dropped) == []
    assert sum(dropped.values()) == 2


def test_a_written_problem_without_a_golden_answer_keeps_its_targets(tmp_path):
    bare = starter_problems("train", 1, 0)[0].model_copy(update={"golden": None})
    keeping.write([bare], tmp_path / "bare.jsonl")
    (read,) = read_cvdp(tmp_path / "bare.jsonl").problems
    assert read.targets == bare.targets
    assert read.golden is None
    assert read.prompt == bare.prompt
