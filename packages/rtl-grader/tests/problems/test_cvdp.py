"""The CVDP reader: both formats, golden answers, problems left out, and clear errors for broken lines."""

import copy
import gzip
import json

import pytest

from rtl_core.errors import ProblemError
from rtl_grader.problems.cvdp import problem_from_record, read_cvdp
from rtl_grader.problems.faults import FieldError, NotGradableError
from rtl_grader.types.problem import InterfaceSource

CODE = "module m(input a, output y);\n  assign y = a;\nendmodule\n"
COMPOSE = "services:\n  direct:\n    image: __OSS_SIM_IMAGE__\n    command: pytest /src/test_runner.py\n"
SINGLE = {
    "id": "single_1",
    "categories": ["cid003", "easy"],
    "input": {"prompt": "Write module m.", "context": {}},
    "output": {"response": "", "context": {"rtl/m.sv": CODE}},
    "harness": {
        "files": {
            "docker-compose.yml": COMPOSE,
            "src/.env": "TOPLEVEL = m\n",
            "src/test_runner.py": "",
        }
    },
}
AGENTIC = {
    "id": "agentic_1",
    "categories": ["cid004", "hard"],
    "system_message": "You are an engineer.",
    "prompt": "Invert the output.",
    "context": {"rtl/m.sv": CODE},
    "patch": {
        "rtl/m.sv": "@@ -1,3 +1,3 @@\n module m(input a, output y);\n-  assign y = a;\n+  assign y = ~a;\n endmodule\n"
    },
    "harness": SINGLE["harness"]["files"],
}


def changed(record, path, value):
    """A copy of a record with another value at a dotted path; `...` removes the key."""
    place = record = copy.deepcopy(record)
    *parents, key = path.split(".")
    for parent in parents:
        place = place[parent]
    place[key] = value
    if value is ...:
        del place[key]
    return record


def test_single_turn_record():
    problem = problem_from_record(SINGLE, source="cvdp")
    assert (problem.id, problem.category, problem.difficulty) == ("single_1", "cid003", "easy")
    assert problem.targets == ("rtl/m.sv",)
    assert problem.golden == {"rtl/m.sv": CODE}
    assert problem.interface.source is InterfaceSource.GOLDEN


def test_agentic_record_with_its_patch_applied():
    problem = problem_from_record(AGENTIC, source="cvdp-agentic")
    assert problem.system == "You are an engineer."
    assert problem.golden == {"rtl/m.sv": CODE.replace("y = a", "y = ~a")}


@pytest.mark.parametrize("text", ["", None, "  \n"])
def test_a_withheld_solution_is_a_target_without_golden_answer(text):
    problem = problem_from_record(
        changed(SINGLE, "output.context", {"rtl/m.sv": text}), source="cvdp"
    )
    assert (problem.targets, problem.golden) == (("rtl/m.sv",), None)
    problem = problem_from_record(changed(AGENTIC, "patch", {"rtl/m.sv": text}), source="cvdp")
    assert problem.golden is None


@pytest.mark.parametrize(
    ("record", "path", "value", "field"),
    [
        (SINGLE, "id", ..., "id"),
        (SINGLE, "id", "a\nb", "id"),
        (SINGLE, "categories", ["cid003"], "categories.1"),
        (SINGLE, "categories", ["cid003", "terrible"], "categories.1"),
        (SINGLE, "input", [], "input.prompt"),
        (SINGLE, "input.prompt", "half \ud800", "input.prompt"),
        (SINGLE, "input.context", {"rtl/a\ud800": "y"}, "input.context"),
        (
            SINGLE,
            "harness.files",
            {"docker-compose.yml": "# \ud800"},
            "harness.files.docker-compose.yml",
        ),
        (SINGLE, "input.prompt", 7, "input.prompt"),
        (SINGLE, "input.prompt", "  ", "prompt"),
        (SINGLE, "input.context", {"../x": "y"}, "input.context"),
        (SINGLE, "input.context", {"/etc/x": "y"}, "input.context"),
        (SINGLE, "input.context", {"rtl/a": 1}, "input.context.rtl/a"),
        (SINGLE, "input.context", {"rtl/m.sv/x": "y"}, "context"),
        (
            SINGLE,
            "harness.files",
            {"docker-compose.yml": "services: {a: {}}", "src": "x"},
            "harness",
        ),
        (SINGLE, "output.context", {}, "output.context"),
        (SINGLE, "output.context", {"src/conftest.py": "x"}, "output.context"),
        (SINGLE, "output", ..., "output.context"),
        (SINGLE, "harness.files", {}, "harness"),
        (
            SINGLE,
            "harness.files",
            {"docker-compose.yml": "services: ["},
            "harness.docker-compose.yml",
        ),
        (
            SINGLE,
            "harness.files",
            {"docker-compose.yml": "version: 3"},
            "harness.docker-compose.yml",
        ),
        (AGENTIC, "patch", {"rtl/m.sv": "@@ -1 +1 @@\n-nonsense\n+x\n"}, "patch.rtl/m.sv"),
        (AGENTIC, "patch", ..., "patch"),
        (AGENTIC, "prompt", ..., "prompt"),
        (AGENTIC, "harness", "text", "harness"),
    ],
)
def test_an_error_of_a_record_names_the_field(record, path, value, field):
    with pytest.raises(FieldError) as caught:
        problem_from_record(changed(record, path, value), source="cvdp")
    assert caught.value.field == field


@pytest.mark.parametrize(
    "category", ["cid006", "cid008", "cid009", "cid010", "cid012", "cid013", "cid014", "cid099"]
)
def test_a_category_that_open_tools_cannot_grade_is_refused_with_a_reason(category):
    with pytest.raises(NotGradableError, match=category):
        problem_from_record(changed(SINGLE, "categories", [category, "easy"]), source="cvdp")


def test_a_commercial_image_is_not_gradable():
    files = {**SINGLE["harness"]["files"], "Dockerfile": "FROM __VERIF_EDA_IMAGE__\n"}
    with pytest.raises(NotGradableError, match="commercial"):
        problem_from_record(changed(SINGLE, "harness.files", files), source="cvdp")


def test_a_record_whose_context_is_a_repository_is_left_out_with_the_reason(tmp_path):
    """As in CVDP's agentic_heavy files: the keys of `context` are not paths, although their values are texts."""
    heavy = AGENTIC | {
        "id": "heavy_1",
        "context": {"repo": "cvdp_agentic_heavy_x", "commit": "0123abcd"},
    }
    (tmp_path / "heavy.jsonl").write_text(json.dumps(heavy) + "\n" + json.dumps(AGENTIC) + "\n")
    found = read_cvdp(tmp_path / "heavy.jsonl")
    assert [p.id for p in found.problems] == ["agentic_1"]
    assert found.broken == []
    assert [(left.id, left.source) for left in found.left_out] == [("heavy_1", "cvdp-agentic")]
    assert "a repository at a commit (agentic_heavy)" in found.left_out[0].reason


def test_broken_lines_are_reported_with_file_line_id_and_field(tmp_path):
    lines = [
        json.dumps(SINGLE),
        "{ not json",
        json.dumps([1, 2]),
        json.dumps(changed(AGENTIC, "prompt", ...)),
        json.dumps(SINGLE),
        json.dumps(changed(SINGLE, "categories", ["cid003", "\x1b[2J"]) | {"id": "a\ud800\n"}),
        "",
        json.dumps(changed(SINGLE, "categories", ["cid010", "easy"]) | {"id": "comprehension"}),
        json.dumps(AGENTIC),
    ]
    path = tmp_path / "mixed.jsonl"
    path.write_text("\n".join(lines))
    found = read_cvdp(path)
    assert [p.id for p in found.problems] == ["single_1", "agentic_1"]
    assert [p.source for p in found.problems] == ["cvdp", "cvdp-agentic"]
    assert [(b.file, b.line, b.id, b.field) for b in found.broken] == [
        ("mixed.jsonl", 2, None, "line"),
        ("mixed.jsonl", 3, None, "line"),
        ("mixed.jsonl", 4, "agentic_1", "prompt"),
        ("mixed.jsonl", 5, "single_1", "id"),
        ("mixed.jsonl", 6, r"a\ud800\n", "id"),
    ]
    assert "line 1" in found.broken[3].reason
    assert [(left.id, "comprehension" in left.reason) for left in found.left_out] == [
        ("comprehension", True)
    ]


def test_a_missing_an_empty_and_a_compressed_file_and_an_array_are_reported(tmp_path):
    with pytest.raises(ProblemError, match=r"cannot read.*\n.*rtl-\w+ problems fetch cvdp"):
        read_cvdp(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("\n")
    with pytest.raises(ProblemError, match="holds no problem"):
        read_cvdp(tmp_path / "empty.jsonl")
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"id": "a"}\n' * 3))
    (broken,) = read_cvdp(tmp_path / "c.jsonl.gz").broken
    assert "is compressed: unpack the file first" in broken.reason
    (tmp_path / "array.json").write_text(json.dumps([SINGLE], indent=1))
    (broken,) = read_cvdp(tmp_path / "array.json").broken
    assert "begins a JSON array" in broken.reason
    (tmp_path / "wide.jsonl").write_text('{"id": "a"}\n', encoding="utf-16")
    (broken,) = read_cvdp(tmp_path / "wide.jsonl").broken
    assert "is UTF-16: save the file as UTF-8" in broken.reason


def test_the_fingerprint_depends_on_the_content_but_not_on_the_id():
    problem = problem_from_record(SINGLE, source="cvdp")
    renamed = problem_from_record({**SINGLE, "id": "other"}, source="cvdp")
    rewritten = problem_from_record(
        changed(SINGLE, "input.prompt", "Write module m!"), source="cvdp"
    )
    assert problem.fingerprint == renamed.fingerprint != rewritten.fingerprint


def test_every_public_agentic_problem_is_read(cvdp):
    found = read_cvdp(cvdp / "cvdp_v1.0.2_agentic_code_generation_no_commercial.jsonl")
    assert (len(found.problems), found.broken, found.left_out) == (92, [], [])
    assert all(problem.golden is None and problem.targets for problem in found.problems)


def test_published_examples_are_read_with_golden_answers_or_left_out_with_a_reason(cvdp):
    found = {path.name: read_cvdp(path) for path in sorted(cvdp.glob("*v1.1.0_example*.jsonl"))}
    goldens = {p.id: p.golden for problems in found.values() for p in problems.problems}
    assert set(goldens) == {"cvdp_agentic_fixed_arbiter_0001", "cvdp_copilot_lfsr_0001"}
    arbiter = goldens["cvdp_agentic_fixed_arbiter_0001"]["rtl/fixed_priority_arbiter.sv"]
    assert "module fixed_priority_arbiter" in arbiter
    left = {out.id: out.reason for problems in found.values() for out in problems.left_out}
    assert len(left) == 3
    assert all("commercial" in reason or "comprehension" in reason for reason in left.values())
