"""Pairs that cannot be read or judged: a clear line each, and the others go on."""

import base64
import json
import os
import pickle
import sys

import pytest

from rtl_grader.errors import ConfigError, ProblemError
from rtl_grader.problems import rows
from rtl_grader.problems.problem_set import MEND, LoadedProblems
from rtl_grader.problems.sources import load_problems, source_of
from rtl_grader.problems.sources.pairs import PairsSource
from rtl_grader.words import MOST_LINES
from tests.command import invoke

GOOD = {
    "prompt": "Invert.",
    "golden": "module inv (input a, output y);\n  assign y = ~a;\nendmodule\n",
}
KEYS = {"specification": "prompt", "golden": "golden"}


def read(path, **keys):
    return PairsSource(kind="pairs", path=path, **{**KEYS, **keys}).read()


class Runs:
    """A pickle of it creates a file when it is loaded."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_pickle_that_would_run_code_is_named_and_not_run(tmp_path):
    hostile = pickle.dumps({"answer": {"code": GOOD["golden"], "more": Runs(tmp_path / "ran")}})
    texts = [
        base64.b64encode(hostile).decode(),
        hostile.decode("latin-1"),
        "gASVnot a pickle",
        "gASV",
    ]
    rows_ = [{"prompt": "Invert.", "golden": text} for text in texts]
    path = tmp_path / "few.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows_, GOOD)))
    contents = read(path)
    assert [problem.id for problem in contents.problems] == ["pairs_few_5"]
    assert [line.reason for line in contents.broken[:2]] == [
        "is a pickle that would run code; it was not run"
    ] * 2
    assert len(contents.broken) + len(contents.left_out) == 4
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("golden", "reason"),
    [
        ("", "its golden answer is empty"),
        ("entity inv is\n  port (a : in bit);\nend inv;\n", "its golden answer is VHDL"),
        ("It is an inverter.", "holds no module with a plain name"),
        ("module $display (input a, output y); assign y = a; endmodule", "no module with a plain name"),
        ("module endcase (input a, output y); assign y = a; endmodule", "top module cannot be read"),
        ("module p (input a); endmodule module q (input a); endmodule", "has several top modules"),
        ("package only; endpackage", "holds no module with a plain name"),
    ],
)  # fmt: skip
def test_a_golden_answer_that_cannot_judge_is_left_out_with_a_reason(golden, reason, tmp_path):
    path = tmp_path / "few.jsonl"
    path.write_text(
        "".join(json.dumps(row) + "\n" for row in ({**GOOD, "golden": golden}, GOOD))
    )
    contents = read(path)
    assert [problem.id for problem in contents.problems] == ["pairs_few_2"]
    (entry,) = contents.left_out
    assert reason in entry.reason


def test_of_several_top_modules_the_one_that_the_specification_names_is_used(tmp_path):
    text = "module p (input a); endmodule module q (input a); endmodule"
    path = tmp_path / "few.jsonl"
    path.write_text(json.dumps({"prompt": "Write q.", "golden": text}))
    assert read(path).problems[0].interface.module == "q"


def test_broken_lines_are_named_and_the_others_read(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "MAX_LINE_BYTES", 1 << 20)
    good = json.dumps(GOOD).encode()
    lines = [b"{torn", b'{"prompt": "\xff\xfe"}', b'{"prompt": "' + b"x" * (2 << 20) + b'"}', b"[1]",
             b'{"prompt": "Invert.", "golden": 7}', b'{"prompt": "Invert."}', b'{"prompt": " ", "golden": "x"}', good]  # fmt: skip
    (tmp_path / "few.jsonl").write_bytes(b"\n".join(lines))
    contents = read(tmp_path / "few.jsonl")
    assert [problem.id for problem in contents.problems] == ["pairs_few_8"]
    reasons = {line.line: f"{line.field}: {line.reason}" for line in contents.broken}
    assert reasons[1].startswith("line: is not JSON")
    assert "utf-8" in reasons[2]
    assert reasons[3] == "line: is longer than 1 MiB"
    assert reasons[4] == "line: is a JSON list, not an object"
    assert (reasons[5], reasons[6]) == ("golden: is int, not text", "golden: is missing")
    assert [entry.reason for entry in contents.left_out] == ["its specification is empty"]


def test_a_published_form_without_a_value_is_named_as_that_form(tmp_path):
    rows = (
        {"instruction": None, "output": "module a; endmodule"},
        {"instruction": "Invert.", "output": None},
    )
    (tmp_path / "few.jsonl").write_text("\n".join(map(json.dumps, rows)))
    contents = PairsSource(kind="pairs", path=tmp_path / "few.jsonl").read()
    assert [entry.reason for entry in contents.left_out] == ["its specification is empty"]
    assert [(line.field, line.reason) for line in contents.broken] == [("output", "is missing")]


def test_a_row_that_lacks_one_column_of_its_form_names_it_and_a_torn_one_the_place(tmp_path):
    good, lacking = (
        {"specification": "Invert.", **GOOD},
        {"specification": "Invert.", "top": "inv"},
    )
    torn = '{"specification": "Invert.", "golden": \n'
    del good["prompt"]
    path = tmp_path / "few.jsonl"
    path.write_text(f"{json.dumps(good)}\n{json.dumps(lacking)}\n{torn}")
    told = [
        "few.jsonl:2: golden: is missing (specification, top); the keys `specification` and `golden` name others",
        "few.jsonl:3: is not JSON: column 41: Expecting value",
    ]
    assert list(map(str, read(path, specification=None, golden=None).broken)) == told
    listed = invoke("problems", "list", "--source", f"pairs={path}").stdout
    assert "\n".join([*(f"broken: {line}" for line in told), MEND]) in listed


def test_an_unknown_form_names_its_columns_and_the_keys_to_set(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        json.dumps({"task": "Invert.", "rtl": "x"}) + '\n{"task": 1, "rtl": 2}\n'
    )
    (tmp_path / "b.jsonl").write_text(
        json.dumps({"instruction": "Invert.", "output": GOOD["golden"]})
    )
    contents = read(tmp_path, specification=None, golden=None)
    assert [problem.id for problem in contents.problems] == ["pairs_b_1"]
    (line,) = contents.broken
    assert str(line).startswith("a.jsonl:1: columns: are those of no published set (task, rtl)")
    assert "`specification` and `golden`" in line.reason
    with pytest.raises(ProblemError, match=r"(?s)no training problem is left.*\(task, rtl\)"):
        load_problems([source_of(f"pairs={tmp_path / 'a.jsonl'}")], 0)


def test_files_that_cannot_be_read_are_named_and_the_others_read(tmp_path):
    (tmp_path / "good.jsonl").write_text(json.dumps(GOOD))
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really PAR1")
    (tmp_path / "bad.json").write_text("[{}, ")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "notes.txt").write_text("hello")
    contents = read(tmp_path)
    assert [problem.id for problem in contents.problems] == ["pairs_good_1"]
    assert sorted(line.file for line in contents.broken) == ["bad.json", "bad.parquet"]
    assert read(tmp_path / "notes.txt").broken[0].reason.startswith("is of no known kind")
    with pytest.raises(ConfigError, match=r"empty.jsonl holds no row"):
        read(tmp_path / "empty.jsonl")
    with pytest.raises(ProblemError, match="no data file"):
        read(tmp_path / "folder.jsonl")
    with pytest.raises(ConfigError, match=r"there is no .*none"):
        source_of(f"pairs={tmp_path / 'none*.jsonl'}")


def test_ids_are_used_once_and_can_be_printed(tmp_path):
    other = GOOD["golden"].replace("~a", "!a")
    rows_ = [
        {**GOOD, "id": "a"},
        {**GOOD, "golden": other, "id": "a"},
        {**GOOD, "id": "\x1b[2J"},
    ]
    (tmp_path / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_))
    contents = read(tmp_path / "few.jsonl", id="id")
    assert [problem.id for problem in contents.problems] == ["a"]
    assert [line.reason for line in contents.broken] == [
        "a was already used",
        "is empty, too long or cannot be printed",
    ]


def test_without_duckdb_json_lines_are_read_and_others_say_what_to_install(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    (tmp_path / "few.jsonl").write_text(json.dumps(GOOD))
    assert len(read(tmp_path / "few.jsonl").problems) == 1
    (tmp_path / "few.csv").write_text("prompt,golden\n")
    for path, where in ((tmp_path / "few.csv", None), (tmp_path / "few.jsonl", "true")):
        with pytest.raises(ConfigError, match=r"pip install rtl-grader\[duckdb\]"):
            read(path, where=where)


def test_many_reasons_are_few_lines(tmp_path):
    lines = ["torn"] * (MOST_LINES + 5) + [json.dumps({**GOOD, "golden": "no"})] * 40
    (tmp_path / "few.jsonl").write_text("\n".join(lines))
    contents = read(tmp_path / "few.jsonl")
    loaded = LoadedProblems(broken=contents.broken, left_out=contents.left_out)
    assert loaded.broken_in_words[MOST_LINES:] == ["and 5 more"]
    (line,) = loaded.left_out_in_words
    assert line.startswith(
        "40 of pairs (pairs_few_26, pairs_few_27, pairs_few_28, ...): its golden"
    )


def test_an_odd_row_does_not_end_the_reading_of_its_file(tmp_path):
    row = {"specification": "Invert a.", "golden": GOOD["golden"]}
    half = row | {"golden": row["golden"] + " // \ud800"}
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, ({}, half, {}, row))))
    (tmp_path / "b.json").write_text(json.dumps([half]))
    result = read(tmp_path, specification=None, golden=None)
    assert [problem.id for problem in result.problems] == ["pairs_a_4"]
    places = [(line.file, line.line, line.field) for line in result.broken]
    assert places == [("a.jsonl", 1, "columns"), ("a.jsonl", 2, "line"), ("b.json", 1, "line")]
