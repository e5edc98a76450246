"""Classes of answers that behave alike: who is the majority, and who is doubtful."""

import pytest

from rtl_core.equivalence.consensus import places
from rtl_core.equivalence.pair import Comparison


def held(behaviour: str):
    """Compares answers whose behaviour is a letter; `x` gives X for ever and agrees with nobody, `?` cannot be simulated."""

    def compare(golden: int, other: int) -> Comparison:
        if "?" in (behaviour[golden], behaviour[other]) or behaviour[golden] == "x":
            return Comparison("unknown", "no")
        return Comparison("same" if behaviour[golden] == behaviour[other] else "different", f"{golden}/{other}")

    return compare


@pytest.mark.parametrize(
    ("behaviour", "results"),
    [
        ("aaab", "sssd"),
        ("aabb", "uuuu"),
        ("ab", "uu"),
        ("a", "u"),
        ("aaax", "sssd"),
        ("xaaa", "dsss"),
        ("aa?", "ssu"),
        ("bcaadea", "uuuuuuu"),
        ("bcaadeaa", "ddssddss"),
        ("", ""),
    ],
)
def test_who_is_outside_the_majority_is_doubtful(behaviour, results):
    found = places([1] * len(behaviour), held(behaviour))
    assert "".join(one.result[0] for one in found) == results


def test_a_text_counts_as_often_as_it_was_found_on_its_own():
    found = places([1, 3, 1], held("abb"))
    assert [one.result for one in found] == ["different", "same", "same"]
    assert [one.share for one in found] == pytest.approx([0.2, 0.8, 0.8])
    assert found[0].detail.startswith("differs from 4 of 5 independent texts: ")
