"""The text of tokens comes from the tokenizer of the run's student, wherever it is installed."""

import shutil

import pytest

from rtl_core.history.records import RunRecord
from rtl_core.pretrained import MODELS
from rtl_core.tinymodels import MODEL_NAMES, model_path
from rtl_core.view.pieces import pieces

LOCAL = {"tinker": {"base_url": "local"}}


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
