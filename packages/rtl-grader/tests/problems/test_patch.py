"""Diff bodies are applied by position, and refused when they do not match."""

import difflib
import random

import pytest

from rtl_grader.hdl.edits import PatchError, apply_patch


def body(old, new):
    """difflib's hunks, with git's mark for a missing newline at the end."""
    lines = list(
        difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), n=2)
    )[2:]
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )


def test_hunks_of_difflib_are_applied():
    chance = random.Random(1)
    for _ in range(300):
        old = [chance.choice("abcdef") for _ in range(chance.randrange(1, 30))]
        new = list(old)
        for _ in range(chance.randrange(1, 5)):
            at = chance.randrange(len(new) + 1)
            new[at : at + chance.randrange(3)] = [chance.choice("xyz")] * chance.randrange(3)
        before, after = ("\n".join(x) + chance.choice(["", "\n"]) for x in (old, new))
        if new and before != after and "" not in new:
            assert apply_patch(before, body(before, after)) == after


def test_a_new_file():
    assert apply_patch("", "@@ -0,0 +1,2 @@\n+a\n+b\n") == "a\nb\n"
    assert apply_patch("", "@@ -0,0 +1,2 @@\n+a\n+b") == "a\nb\n"
    assert apply_patch("", "@@ -0,0 +1 @@\n+a\n\\ No newline at end of file") == "a"


def test_a_carriage_return_belongs_to_its_line():
    assert apply_patch("a\r\nb\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+c\r\n") == "a\r\nc\r\n"


@pytest.mark.parametrize(
    "hunks",
    [
        "",
        "+a\n",
        "@@ nonsense @@\n+a\n",
        "@@ -1,1 +1,1 @@\n-z\n+y\n",
        "@@ -9,1 +9,1 @@\n-a\n+y\n",
        "@@ -1,2 +1,2 @@\n-a\n+y\n",
        "@@ -1,1 +1,1 @@\n?a\n",
        "@@ -1,1 +1,1 @@\n-a\n+x\n+y\n",
    ],
)
def test_hunks_that_do_not_match_are_refused(hunks):
    with pytest.raises(PatchError):
        apply_patch("a\nb\nc\n", hunks)
