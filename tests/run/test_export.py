"""What the model card says about the teacher, and where it is not written."""

import asyncio

import pytest

from rtl_core.config import load_config
from rtl_core.errors import PolicyError
from rtl_core.history.records import RunRecord, StepRecord, StepState
from rtl_core.history.store import History
from rtl_core.run.export import export_adapter
from rtl_core.run.model_card import model_card


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (
            ["learning.kl_weight=0.5", "learning.kl_schedule=constant"],
            "on-policy distillation from teacher (λ = 0.5).",
        ),
        (
            [
                "learning.kl_weight=0",
                "learning.kl_schedule=linear",
                "learning.final_kl_weight=0.5",
            ],
            "on-policy distillation from teacher (λ from 0 to 0.5, linear).",
        ),
        (
            ["learning.kl_weight=0.1", "learning.kl_schedule=target", "learning.kl_target=0.2"],
            "on-policy distillation from teacher (λ from 0.1 on, held to a KL of 0.2 nats per token).",
        ),
        (["learning.kl_weight=0", "learning.kl_schedule=constant"], "no teacher."),
        (
            [
                "learning.kl_weight=0",
                "learning.warm_start_steps=3",
                "learning.warm_start_problems=48",
            ],
            "a warm start of 3 steps of 48 problems on answers of teacher.",
        ),
    ],
)
def test_the_card_describes_how_a_run_learned_from_its_teacher(tmp_path, overrides, words):
    history = History(tmp_path / "history.duckdb")
    history.start_run(RunRecord(name="carded"))
    config = load_config(
        "demo", ["run.name=carded", "learning.warm_start_steps=0", *overrides], environment={}
    )
    step = StepState(
        run="carded",
        epoch=0,
        step=3,
        status="trained",
        problem_ids=("a",),
        state_path="tinker://a",
    )
    card = model_card(history, config, step)
    assert f", {words}\n" in card
    assert ("no teacher" in card) == (words == "no teacher.")


def test_an_export_does_not_replace_the_readme_of_another_folder(tmp_path):
    history = History(tmp_path / "history.duckdb")
    history.start_run(RunRecord(name="demo"))
    paths = {"state_path": "tinker://a", "sampler_path": "tinker://b"}
    history.finish_step(
        StepRecord(run="demo", epoch=0, step=0, **paths, examples=1, train_tokens=1)
    )
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(PolicyError, match=r"README\.md exists"):
        asyncio.run(
            export_adapter(
                history, load_config("demo", environment={}), "last", tmp_path, print
            )
        )
    assert (tmp_path / "README.md").read_text() == "mine"
