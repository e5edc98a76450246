"""Highlighting, differences, waveforms and texts of tokens."""

import html
import re
import shutil

import pytest

from rtl_core.debugging.checks import Check
from rtl_core.debugging.table import hexadecimal
from rtl_core.debugging.waves import Signal, Waves
from rtl_core.history.records import RunRecord
from rtl_core.pretrained import MODELS
from rtl_core.tinymodels import MODEL_NAMES, model_path
from rtl_core.view.code import coloured, difference
from rtl_core.view.pieces import pieces
from rtl_core.view.server import _templates
from rtl_core.view.waves import draw
from rtl_grader.types.verdict import Verdict

LOCAL = {"tinker": {"base_url": "local"}}
TEXT = 'module m(input a); /* one\n  <b>two</b> */\n  assign x = "a & b" ? 1 : a;\nendmodule\n'


def plain(lines) -> list[str]:
    return [html.unescape(re.sub(r"<[^>]*>", "", line)) for line in lines]


def test_a_small_negative_number_is_no_minus_zero():
    parts = _templates().get_template("parts.html").module
    assert (parts.number(-0.0001), parts.signed(-0.0001)) == ("0.000", "+0.000")
    assert (parts.number(-0.5, 1), parts.signed(0.25, 2)) == ("-0.5", "+0.25")


def test_every_line_keeps_its_text_and_is_complete_html():
    for text in (
        TEXT,
        TEXT.replace("\n", "\r\n"),
        "",
        "\n\nx\n",
        "x",
        "x" * 70_000,
        "<script>" * 3_000,
    ):
        lines = coloured(text)
        assert plain(lines) == text.replace("\r\n", "\n").splitlines()
        for line in lines:
            assert line.count("<span") == line.count("</span>")
            assert "<b>" not in line
            assert "<script" not in line


def test_a_difference_names_the_lines_of_both():
    found = difference("a\nb\nc\n", "a\nB\nc\nd\n")
    marks = [(" ", 1, 1), ("-", 2, None), ("+", None, 2), (" ", 3, 3), ("+", None, 4)]
    assert [(d.mark, d.old, d.new) for d in found] == marks
    assert difference(TEXT, TEXT) == []
    assert difference("x\n" * 5_000, "y\n" * 5_000) is None
    assert [d.mark for d in difference("", "a\n")] == ["+"]


def test_bits_are_written_as_hexadecimal_digits_and_unknown_ones_stay_unknown():
    digits = {
        "1": "0x1",
        "10101": "0x15",
        "zzzzz": "0xzz",
        "1x01": "0xx",
        "00001111": "0x0f",
        "x": "0xx",
    }
    assert {bits: hexadecimal(bits) for bits in digits} == digits


def test_a_waveform_has_a_track_per_signal_and_marks_the_failing_check():
    verdict = Verdict(outcome="tests_failed", stages=(), executor="bubblewrap")
    check = Check("q is 0101, expected 0110", "t", 3e-9, 0, "q", "0101", "0110")
    signals = (
        Signal("clk", 1, "input", ((0, "0"), (5, "1"), (10, "0"))),
        Signal("q", 4, "output", ((0, "xxxx"), (5, "0101")), ((0, "xxxx"), (5, "0110"))),
    )
    made = draw(Waves("k", verdict, check, 5, 0, 10, 1e-9, "tb.dut", signals, b""))
    assert [track.name for track in made.tracks] == ["clk", "q [3:0]", "q expected"]
    assert [track.wrong for track in made.tracks] == [False, True, False]
    assert [(piece.text, piece.unknown) for piece in made.tracks[1].pieces] == [
        ("xxxx", True),
        ("0101", False),
    ]
    assert made.moment == made.tracks[1].pieces[1].x
    assert made.failure == "q is 0101, expected 0110"
    assert [words for _, words in made.ticks] == ["0 ps", "5 ns", "10 ns"]
    # An edge: the same x twice, low then high.
    corners = [tuple(map(float, corner.split(","))) for corner in made.tracks[0].path.split()]
    assert corners[1][0] == corners[2][0] == made.moment
    assert corners[1][1] > corners[2][1]


@pytest.mark.parametrize("student", MODEL_NAMES)
def test_shipped_models_have_a_tokenizer(student):
    assert pieces(RunRecord(name="run", config=LOCAL, student=student), [5, 6]) is not None


def test_a_fetched_model_uses_the_tokenizer_in_its_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RTL_DISTILL_MODELS", str(tmp_path))
    name = next(iter(MODELS))
    (tmp_path / name).mkdir()
    shutil.copy(model_path("student") / "tokenizer.json", tmp_path / name)
    found = pieces(RunRecord(name="run", config=LOCAL, student=name), [5, 6])
    assert found == pieces(RunRecord(name="run", config=LOCAL, student="student"), [5, 6])
    assert found is not None
