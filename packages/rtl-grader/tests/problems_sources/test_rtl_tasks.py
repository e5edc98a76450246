"""The tasks that RTL becomes."""

from collections import Counter

import pytest
from pydantic import ValidationError
from rtl_project import project, read, reasons

from rtl_grader.errors import ConfigError
from rtl_grader.extraction.answer_to import answer_to, masked_piece, response_of
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.problems.rtl.scan import count_tokens
from rtl_grader.problems.sources import SOURCES, load_problems
from rtl_grader.prompts import build_messages
from rtl_grader.types.problem import MASKED


@pytest.fixture
def folder(tmp_path):
    return project(tmp_path / "set")


def pieces(problems, family="complete"):
    return {masked_piece(problem) for problem in problems if problem.family == family}


def test_each_part_of_a_module_can_be_masked(folder):
    problems = read(folder, per_module=20).problems
    assert pieces(problems) == {
        "assign following = `STEP(q);",
        "always_ff @(posedge clk)\n    if (rst) q <= '0;\n    else if (up) q <= following;",
        "if (rst) q <= '0;\n    else if (up) q <= following;",
        "if (up) q <= following;",
        "q <= '0;",
        "q <= following;",
        "count u_count (.clk, .rst, .up(a ^ b), .q);",
        "always_comb\n    case ({a, b})\n      2'b00: y = 2'd3;\n      2'b01: y = 2'd1;\n"
        "      default: y = {b, a};\n    endcase",
        "case ({a, b})\n      2'b00: y = 2'd3;\n      2'b01: y = 2'd1;\n"
        "      default: y = {b, a};\n    endcase",
        "y = 2'd3;",
        "y = 2'd1;",
        "y = {b, a};",
    }


def test_a_masked_body_leaves_the_ports_and_parameters(tmp_path):
    (tmp_path / "old.v").write_text(
        "module old (a, y);\n  parameter W = 2;\n  input [W-1:0] a;\n  output [W-1:0] y;\n"
        "  localparam X = 1;\n  reg [W-1:0] y;\n  always @* y = a ^ X;\nendmodule\n"
    )
    (problem,) = read(tmp_path, tasks=["module"]).problems
    assert masked_piece(problem) == "reg [W-1:0] y;\n  always @* y = a ^ X;"
    assert problem.category == "cid003"


def test_a_body_of_one_statement_is_one_task(tmp_path):
    (tmp_path / "a.v").write_text(
        "module a (input x, y, z, output q);\n  assign q = x ? y : z;\nendmodule\n"
    )
    assert [problem.family for problem in read(tmp_path).problems] == ["module"]
    alone = read(tmp_path, tasks=["complete"]).problems
    assert [problem.family for problem in alone] == ["complete"]


def test_a_masked_body_is_shown_with_what_instantiates_the_module(tmp_path):
    """In other files, twice at most, not in test benches, and only the first lines."""
    long = "".join(f"    .p{i}(a),\n" for i in range(60))
    users = [
        f"module u{i} (input a, output y);\n  leaf l{i} (.a, .y);\nendmodule\n" for i in "bc"
    ]
    more = {
        "src__leaf_dot_v": "module leaf (input a, output y);\n  wire b;\n  assign b = ~a;\n  assign y = b;\nendmodule\n"
        "module own (input a, output y);\n  leaf inner (.a, .y);\nendmodule\n",
        "src__tb_dot_v": "module tb (input a, output y);\n  leaf in_bench (.a, .y);\nendmodule\n",
        "src__ua_dot_v": f"module ua (input a, output y);\n  leaf la (\n{long}    .y);\nendmodule\n",
        "src__ub_dot_v": users[0],
        "src__uc_dot_v": users[1],
    }
    problems = read(project(tmp_path, **more)).problems
    prompts = {(p.interface.module, p.family): p.prompt for p in problems}
    shown = prompts["leaf", "module"].split("\n\nIt is used in ")
    assert [text.partition(":")[0] for text in shown[1:]] == [
        "`rtl/src/ua.v`",
        "`rtl/src/ub.v`",
    ]
    assert shown[2].endswith("```\nleaf lb (.a, .y);\n```")
    assert ".p38(a)" in shown[1]
    assert ".p39(a)" not in shown[1]
    assert "It is used in" not in prompts["leaf", "complete"] + prompts["own", "module"]
    assert prompts["count", "module"].endswith(
        "count u_count (.clk, .rst, .up(a ^ b), .q);\n```"
    )


def test_no_mask_tears_a_condition_or_a_macro(tmp_path):
    (tmp_path / "x.v").write_text(
        "`define BOTH assign y = a; assign z = b\n"
        "module x (input a, b, output y, z, output reg q);\n  `BOTH;\n"
        "  always @(posedge a)\n`ifdef SLOW\n    if (b) q <= 0;\n`else\n    if (b)\n      q <= 1;\n`endif\n"
        "  assign w =\n`ifdef SLOW\n    a;\n`else\n    b;\n`endif\nendmodule\n"
    )
    for piece in pieces(read(tmp_path, per_module=50).problems):
        assert piece.count("`ifdef") == piece.count("`endif"), piece
        assert "BOTH" not in piece


def test_the_size_of_the_mask_is_the_difficulty(folder):
    problems = read(folder, per_module=20).problems
    sizes = {level: [] for level in ("easy", "medium", "hard")}
    for problem in problems:
        sizes[problem.difficulty].append(len(masked_piece(problem).split()))
    assert max(sizes["easy"]) < max(sizes["medium"])
    assert not sizes["hard"]


def test_masks_of_all_sizes_are_drawn_by_seed(folder):
    first, again, other = (read(folder, seed=seed, per_module=2).problems for seed in (0, 0, 4))
    assert first == again
    assert {p.id for p in first} != {p.id for p in other}
    everything = {p.id: p for p in read(folder, per_module=20).problems}
    assert all(everything[p.id] == p for p in [*first, *other])
    families = Counter((p.interface.module, p.family) for p in first)
    assert set(families.values()) == {1, 2}


def test_masks_can_be_limited_in_size(folder):
    every = read(folder, per_module=20, tasks=["complete"]).problems
    small = read(folder, per_module=20, tasks=["complete"], mask_tokens=6).problems
    few = {p.id for p in every if count_tokens(masked_piece(p)) <= 6}
    assert {p.id for p in small} == few
    assert 0 < len(small) < len(every)
    nothing = reasons(read(folder, tasks=["complete"], mask_tokens=4))
    assert "no part of it can be masked with mask_tokens = 4" in nothing.values()
    with pytest.raises(ValidationError, match="mask_tokens"):  # no mask is so small
        read(folder, mask_tokens=3)


def test_training_problems_can_be_limited_and_designs_stay_whole(tmp_path):
    for i in range(8):
        project(tmp_path / f"project{i}")
    every, few = (LoadedProblems(split="design") for _ in range(2))
    for loaded, most in ((every, None), (few, 5)):
        settings = {"heldout_fraction": 0.4, "train_problems": most, "tasks": ["complete"]}
        SOURCES.find("rtl")(kind="rtl", path=tmp_path, **settings).add_to(loaded, 0)
    assert few.heldout == every.heldout
    kept = {few.designs[p.id].name for p in few.train}
    assert [p for p in every.train if every.designs[p.id].name in kept] == few.train
    assert 5 <= len(few.train) < len(every.train)
    source = SOURCES.find("rtl")(kind="rtl", path=tmp_path, **settings)
    evaluated = load_problems([source], 0, hold_out_all=True)
    assert len(evaluated.heldout) == len(every.every)


def test_the_window_shows_the_lines_around_the_mask(folder):
    shown = {}
    for problem in read(folder, per_module=20, tasks=["complete"]).problems:
        system, user = build_messages(problem, "window")
        assert "[MASKED]" in system["content"]
        shown[masked_piece(problem)] = user["content"]
    text = shown["q <= following;"]
    assert text.startswith("// Counts")
    assert text.endswith("else if (up) [MASKED]\nendmodule")


def test_the_window_of_a_long_file_has_whole_lines_unless_a_line_is_longer(tmp_path):
    filler = "".join(f"  wire [7:0] unused_{i:03};\n" for i in range(60))
    wide = ", ".join(f"input a{i}" for i in range(200))
    (tmp_path / "long.v").write_text(
        f"module long (input a, output y);\n{filler}  assign y = ~a;\n{filler}endmodule\n"
    )
    (tmp_path / "wide.v").write_text(
        f"module wide ({wide}, output y); assign y = ~a0; endmodule\n"
    )
    for problem in read(tmp_path, tasks=["complete"]).problems:
        content = build_messages(problem, "window")[-1]["content"]
        before, _, after = content.partition("[MASKED]")
        assert 250 < len(before) <= 300
        assert content in problem.frame[problem.targets[0]]
        if problem.interface.module == "long":
            assert 150 < len(after) <= 200
            assert before.lstrip().startswith("wire [7:0] unused_")
            assert after.endswith(";")


def test_the_window_needs_a_mask(folder):
    problem = read(folder).problems[0].model_copy(update={"frame": {}})
    with pytest.raises(ConfigError, match="nothing is masked"):
        build_messages(problem, "window")


def test_a_missing_public_set_is_named_with_its_origin(tmp_path):
    there = tmp_path / "RTL-BenchLS" / "data" / "slice_0[12].jsonl"
    assert (
        SOURCES.find("rtl")
        .how_to_get(there)
        .startswith(
            f"run `git clone https://github.com/SebastianWANG2024/RTL-BenchLS {tmp_path}/RTL-BenchLS`"
        )
    )
    assert "git" not in SOURCES.find("rtl").how_to_get(tmp_path)


def test_the_masked_file_is_shown_once_with_what_it_needs(folder):
    for problem in read(folder).problems:
        (path,) = problem.targets
        assert (
            problem.frame[path]
            == problem.golden[path].replace(masked_piece(problem), MASKED, 1)
            or problem.frame[path].count(MASKED) == 1
        )
        assert path not in problem.context
        for template in ("bare", "brief", "exact", "table", "full"):
            shown = "\n".join(m["content"] for m in build_messages(problem, template))
            assert shown.count(problem.frame[path].rstrip()) == 1
            assert all(shown.count(text.rstrip()) == 1 for text in problem.context.values())
        assert (
            "in the place of `[MASKED]` alone"
            in build_messages(problem, "exact")[-1]["content"]
        )


def test_golden_answers_and_their_pieces_are_read_back(folder):
    for problem in read(folder, per_module=20).problems:
        block = f"```verilog\n{masked_piece(problem)}\n```"
        for response in (block, response_of(problem.golden)):
            assert answer_to(problem, response).files == problem.golden


@pytest.mark.parametrize(
    ("modules", "names"),
    [(["*"], {"count", "top"}), (["c*"], {"count"}), (["*", "!c*"], {"top"})],
)
def test_modules_are_chosen_by_globs(folder, modules, names):
    assert {p.interface.module for p in read(folder, modules=modules).problems} == names


def test_a_module_with_too_many_lines_is_left_out(folder):
    long = "its file and those that it needs have more lines than max_lines = 15"
    contents = read(folder, max_lines=15)
    assert {p.interface.module for p in contents.problems} == {"count"}
    assert reasons(contents)["top.sv: top"] == long


def test_several_projects_are_held_out_as_a_whole(tmp_path):
    for name in ("one", "two", "three", "four"):
        other = f"module other_{name} (input a, output y);\n  assign y = !a;\nendmodule\n"
        project(tmp_path / name, src__other_dot_sv=other)
    source = SOURCES.find("rtl")(kind="rtl", path=tmp_path)
    problems = source.read().problems
    assert {source.design_of(p).name for p in problems} == {"one", "two", "three", "four"}
    assert len({p.id for p in problems}) == len(problems)


def test_in_one_project_modules_that_instances_connect_are_held_out_together(folder):
    alone = "module alone (input a, output y);\n  assign y = !a;\nendmodule\n"
    (folder / "alone.sv").write_text(alone)
    source = SOURCES.find("rtl")(kind="rtl", path=folder)
    designs = {p.interface.module: source.design_of(p).name for p in source.read().problems}
    assert designs == {"count": "count", "top": "count", "alone": "alone"}
    assert load_problems([source], 0).train
