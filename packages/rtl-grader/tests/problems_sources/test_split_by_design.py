"""All problems of one design are on one side of the split, checked by other means than those that make the split."""

import json
import re
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from rtl_core.synthesis.variants import record_of
from rtl_grader.problems.near_duplicates import BY_DESIGN, pairs
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.problems.sources import load_problems
from rtl_grader.problems.sources.cvdp import CvdpSource
from rtl_grader.problems.sources.rtllm import RtllmSource
from rtl_grader.problems.sources.verilog_eval import VerilogEvalSource
from rtl_grader.types.problem import Problem
from tests.nouns import a_problem

AGENTIC = "cvdp_v1.0.2_agentic_code_generation_no_commercial.jsonl"


@pytest.fixture(scope="module")
def agentic(data):
    return load_problems([CvdpSource(kind="cvdp", path=data / "cvdp" / AGENTIC)], 0)


@pytest.fixture(scope="module")
def both(data):
    """The agentic and the single-turn problems, as two sources of one run."""
    paths = (data / "cvdp" / AGENTIC, data / "cvdp-single")
    return load_problems([CvdpSource(kind="cvdp", path=path) for path in paths], 0)


def ip_of(problem: Problem) -> str:
    """`fixed_arbiter` of `cvdp_agentic_fixed_arbiter_0001`, in lower case."""
    return "_".join(problem.id.lower().split("_")[2:-1])


def texts_of(problem: Problem) -> list[str]:
    """The prompt and the shown RTL."""
    return [
        problem.prompt,
        *(text for path, text in problem.context.items() if path.startswith("rtl/")),
    ]


def modules_of(problem: Problem) -> set[str]:
    """Names after `module` at the start of a line, in the shown RTL and the prompt, and names of the demanded RTL files."""
    names = re.findall(r"^\s*module\s+(\w+)\s*[#(;]", "\n".join(texts_of(problem)), re.M)
    names += [Path(path).stem for path in problem.targets if path.startswith("rtl/")]
    return set(map(str.lower, names))


def lines_of(problem: Problem) -> list[str]:
    """The longer lines of the prompt and the shown RTL, without white space."""
    lines = ["".join(line.split()) for text in texts_of(problem) for line in text.splitlines()]
    return [line for line in lines if len(line) > 12]


def share_a_design(loaded: LoadedProblems, what) -> list[tuple[str, str]]:
    """Pairs of a training and a held-out problem that have something in common."""
    return [(a.id, b.id) for a in loaded.train for b in loaded.heldout if what(a) & what(b)]


@pytest.mark.slow
def test_no_ip_of_the_agentic_problems_is_on_both_sides(agentic, both):
    assert (len(agentic.every), len(both.every)) == (92, 92 + 38)
    for loaded in (agentic, both):
        assert not share_a_design(loaded, lambda p: {ip_of(p)})


def test_no_shown_or_demanded_module_is_on_both_sides(agentic, both):
    for loaded in (agentic, both):
        assert not share_a_design(loaded, modules_of)


def test_agentic_problems_on_different_sides_share_few_lines(agentic):
    """By difflib on whole lines of prompt and code; different designs share at most a tenth of their lines."""
    worst = max(
        (SequenceMatcher(None, lines_of(a), lines_of(b), autojunk=False).ratio(), a.id, b.id)
        for a in agentic.train
        for b in agentic.heldout
    )
    assert worst[0] < 0.3, worst


def test_the_split_by_id_would_fail_these_criteria(data):
    """The criteria can fail: seven problems that are held out by id have a sibling in training."""
    loaded = load_problems([CvdpSource(kind="cvdp", path=data / "cvdp" / AGENTIC)], 0, "id")
    siblings = {b for _, b in share_a_design(loaded, lambda p: {ip_of(p)})}
    assert len(siblings) == 7
    assert share_a_design(loaded, modules_of)


def test_no_held_out_problem_of_a_split_by_design_has_a_near_duplicate_in_training(both):
    assert not pairs(both.train, both.heldout, BY_DESIGN)


def test_the_held_out_share_is_near_the_fraction(data, agentic, both):
    """17 of 92, 26 of 130 and 15 of 78; a random split would give 20 % with deviations of 6, 5 and 5 points."""
    verilog_eval = load_problems(
        [VerilogEvalSource(kind="verilog-eval", path=data / "verilog-eval")], 0
    )
    shares = [
        len(loaded.heldout) / len(loaded.every) for loaded in (agentic, both, verilog_eval)
    ]
    assert shares == pytest.approx([0.2, 0.2, 0.2], abs=0.02)


def test_a_design_never_changes_sides_as_the_set_grows(data, tmp_path, agentic):
    lines = (data / "cvdp" / AGENTIC).read_text().splitlines(keepends=True)
    (tmp_path / "some.jsonl").write_text("".join(lines[::3]))
    some = load_problems([CvdpSource(kind="cvdp", path=tmp_path / "some.jsonl")], 0)
    of_all = {p.id for p in agentic.heldout}
    moved = {move.moved for move in agentic.moved}
    assert {p.id for p in some.heldout} <= of_all
    assert {p.id for p in some.train} & of_all <= moved, (
        "only problems that belong to a newer one"
    )


CODE = """\
module {name} (input clk, input rst, input [7:0] {a}, output reg [7:0] {b});
  reg [7:0] {c}; reg [2:0] {d};
  always @(posedge clk) begin
    if (rst) begin {c} <= 0; {d} <= 0; {b} <= 8'h5a; end
    else if ({d} == 5) begin {c} <= {c} ^ {a}; {d} <= 0; {b} <= {c} + {a}; end
    else begin {d} <= {d} + 1; {c} <= {{{c}[6:0], {a}[7]}}; if ({a}[0] && !{c}[3]) {b} <= {b} - {c}; end
  end
endmodule
"""


def cvdp(identity: str, prompt: str, context: dict[str, str], target: str) -> str:
    """Line of a single-turn file."""
    compose = "services:\n  direct:\n    image: __OSS_SIM_IMAGE__\n    command: pytest\n"
    given = {"id": identity, "prompt": prompt, "context": context, "targets": (target,)}
    return (
        json.dumps(record_of(a_problem(**given, harness={"docker-compose.yml": compose})))
        + "\n"
    )


def test_a_renamed_design_moves_with_all_its_problems(tmp_path):
    """An IP with another name and other identifiers, in its own source without problems held out by hash."""
    first = CODE.format(name="mixer", a="din", b="dout", c="state", d="count")
    other = CODE.format(name="blend", a="sample", b="result", c="acc", d="phase")
    twin = cvdp(
        "cvdp_copilot_blend_0003",
        "Add a bypass to the blender.",
        {"rtl/blend.sv": other},
        "rtl/blend.sv",
    )
    sibling = cvdp(
        "cvdp_agentic_blend_0009", "Write a test plan driver for it.", {}, "rtl/blend_driver.sv"
    )
    held = cvdp(
        "cvdp_copilot_mixer_0001", "Mend the reset.", {"rtl/mixer.sv": first}, "rtl/mixer.sv"
    )
    alone = cvdp("cvdp_copilot_gray_0001", "Convert to Gray code.", {}, "rtl/gray.sv")
    (tmp_path / "a.jsonl").write_text(held)
    (tmp_path / "b.jsonl").write_text(twin + sibling + alone)
    sources = [
        CvdpSource(kind="cvdp", path=tmp_path / "a.jsonl", heldout_fraction=0.999999),
        CvdpSource(kind="cvdp", path=tmp_path / "b.jsonl", heldout_fraction=0.0),
    ]
    loaded = load_problems(sources, 0)
    assert [p.id for p in loaded.train] == ["cvdp_copilot_gray_0001"]
    assert [(m.moved, m.by) for m in loaded.moved] == [
        ("cvdp_copilot_blend_0003", "code"),
        ("cvdp_agentic_blend_0009", "design cvdp blend"),
    ]
    assert "shares the design cvdp blend with cvdp_copilot_blend_0003" in str(loaded.moved[1])
    assert len(load_problems(sources, 0, "id").train) == 3


def test_a_problem_of_verilog_eval_and_of_rtllm_is_a_design_of_its_own(data):
    sources = (
        VerilogEvalSource(kind="verilog-eval", path=data / "verilog-eval"),
        RtllmSource(kind="rtllm", path=data / "RTLLM"),
    )
    loaded = load_problems(sources, 0)
    assert len({design.name for design in loaded.designs.values()}) == len(loaded.every)
    assert not any(design.modules for design in loaded.designs.values()), (
        "all of VerilogEval's modules are TopModule"
    )
