"""The note on the demo's student is shown for the demo, and for no other run."""

import pytest

from rtl_core.history.records import RunRecord
from rtl_core.pretrained import MODELS
from rtl_core.reporting.report import DEMO, TINY, demo_note
from rtl_core.tinymodels import MODEL_NAMES

LOCAL = {"base_url": "local"}


@pytest.mark.parametrize("student", TINY)
def test_a_run_of_a_tiny_student_has_the_note(student):
    assert student in MODEL_NAMES
    assert demo_note(RunRecord(name="run", config={"tinker": LOCAL}, student=student)) == DEMO


@pytest.mark.parametrize(
    ("student", "tinker"),
    [
        (next(iter(MODELS)), LOCAL),
        ("student", {**LOCAL, "local_models": {"student": "models/mine"}}),
        ("student", {"base_url": "https://gpu7"}),
    ],
)
def test_a_run_of_another_student_has_no_note(student, tinker):
    assert demo_note(RunRecord(name="run", config={"tinker": tinker}, student=student)) is None
