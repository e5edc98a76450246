"""A merged export is one plain model that computes what was served; otherwise nothing is written."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from rich.console import Console
from safetensors.torch import load_file, save_file

from localtinker.lora import AdapterBank, LoraSpec, write_adapter
from rtl_core.backend.base import Adam, Datum, SamplingParams, Weights
from rtl_core.backend.registry import backend_of
from rtl_core.config import RunConfig, load_config
from rtl_core.errors import PolicyError
from rtl_core.history.records import EvaluationRecord, RunRecord, StepPlan, StepRecord
from rtl_core.history.store import History
from rtl_core.run.export import (
    Difference,
    checkpoint_table,
    difference,
    export_merged,
    recorded_answers,
    require_same,
)
from rtl_core.run.merging import load_model, merged, save_model
from rtl_core.tinymodels import model_path
from tests.command import invoke
from tests.nouns import a_rollout

ADAM = Adam(learning_rate=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, grad_clip_norm=0.0)
PROMPT = [40, 41, 42, 43, 44, 45, 46]
STEPS = 2


@dataclass(frozen=True)
class Trained:
    """A run of two steps; the history has answers of the second's weights and none of the first's."""

    history: History
    config: RunConfig


def train(folder: Path, *overrides: str) -> Trained:
    """Train two steps with the embedded service and record them as a run does."""
    places = (
        "run.name=two",
        f"run.directory={folder}",
        f"run.history={folder / 'h.duckdb'}",
        "tinker.lora_rank=8",
    )
    config = load_config("demo", [*places, *overrides], environment={})
    history = History(config.run.history)
    history.start_run(
        RunRecord(
            name="two", config=config.model_dump(mode="json"), versions={"rtl-distill": "9.9"}
        )
    )
    history.plan_epoch(
        "two", 0, [StepPlan(step=step, problem_ids=("a",)) for step in range(STEPS)]
    )

    async def run() -> None:
        async with backend_of(config).open(config, print) as backend:
            stop = config.prompting.chat(backend.tokenizer, "student").stop
            trainer = await backend.open_trainer(None)
            for step in range(STEPS):
                tokens = [50, 60, 70, 80]
                scores = await backend.logprobs(Weights(), PROMPT, tokens)
                datum = Datum(
                    PROMPT, tokens, {"logprobs": scores, "advantages": np.ones(4, np.float32)}
                )
                done = await trainer.step([datum], "importance_sampling", {}, ADAM)
                saved = await trainer.save(f"two-{step + 1:06d}", None)
                record = StepRecord(
                    run="two",
                    epoch=0,
                    step=step,
                    **vars(saved),
                    examples=1,
                    train_tokens=done.tokens,
                )
                history.finish_step(record)
            answers = await backend.sample(
                Weights(path=saved.sampler_path),
                PROMPT,
                4,
                SamplingParams(24, 0.7, stop),
                seeds=range(4),
            )
        place = {
            "run": "two",
            "purpose": "evaluation",
            "evaluation": "two/e",
            "step": STEPS,
            "problem_id": "a",
        }
        history.record_rollouts(
            [
                a_rollout(**place, sample=n, prompt_P=PROMPT, **vars(one))
                for n, one in enumerate(answers)
            ]
        )

    asyncio.run(run())
    history.record_evaluation(
        EvaluationRecord(
            key="two/e", run="two", policy="student", step=STEPS, split="heldout", status="done", n_problems=1,
            samples=config.evaluation.samples, pass_at_1=0.25, lo=0.125, hi=0.5,
        )
    )  # fmt: skip
    return Trained(history, config)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("run"))


def export(run: Trained, folder: Path, step: str = "last", **more: object) -> list[str]:
    """The log lines of an export."""
    told: list[str] = []
    asyncio.run(export_merged(run.history, run.config, step, folder, told.append, **more))  # type: ignore[arg-type]
    return told


PLAIN = """
import json, sys
sys.modules["peft"] = sys.modules["rtl_core"] = None
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, answers = sys.argv[1], json.loads(sys.argv[2])
model = AutoModelForCausalLM.from_pretrained(folder)
AutoTokenizer.from_pretrained(folder).apply_chat_template([{"role": "user", "content": "x"}], add_generation_prompt=True)
for prompt, tokens in answers:
    scores = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    print(json.dumps(scores[range(len(tokens)), tokens].tolist()))
"""


@pytest.mark.slow
def test_the_merged_folder_is_loaded_by_plain_transformers_and_computes_what_was_served(
    run, tmp_path
):
    told = export(run, tmp_path / "out", dtype="float32")
    assert "those of the base model by" in told[-1]
    assert "too little" not in told[-1]
    served = recorded_answers(run.history, run.config, STEPS, any_temperature=True)
    assert len(served) == 4
    asked = json.dumps([[list(one.prompt_P), list(one.tokens_T)] for one in served])
    found = subprocess.run(
        [sys.executable, "-c", PLAIN, str(tmp_path / "out"), asked],
        capture_output=True,
        text=True,
        check=True,
    )
    for one, scores in zip(served, found.stdout.splitlines(), strict=True):
        np.testing.assert_allclose(json.loads(scores), one.logprobs_T, atol=1e-4)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "README.md", "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    with pytest.raises(PolicyError, match="exists already"):
        export(run, tmp_path / "out")


@pytest.mark.slow
def test_it_has_the_dtype_of_the_base_or_the_given_one(run, tmp_path):
    for named, dtype in ((None, "float16"), ("bfloat16", "bfloat16")):
        export(run, tmp_path / dtype, dtype=named)
        assert json.loads((tmp_path / dtype / "config.json").read_text())["dtype"] == dtype
        tensors = load_file(tmp_path / dtype / "model.safetensors")
        assert {str(tensor.dtype) for tensor in tensors.values()} == {f"torch.{dtype}"}


@pytest.mark.slow
def test_weights_without_answers_in_the_history_are_scored_by_the_service(run, tmp_path):
    assert recorded_answers(run.history, run.config, 1, any_temperature=True) == []
    told = export(run, tmp_path / "out", step="1", dtype="float32")
    assert "the embedded service is started" in told[1]
    assert "tokens of 4 answers" in told[-1]


def altered(source: Path, folder: Path) -> Path:
    """The same model except for one row of one layer."""
    shutil.copytree(source, folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.v_proj.weight"][0] += 0.5
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_base_other_than_the_trained_one_is_refused_and_nothing_is_written(run, tmp_path):
    for dtype in ("float32", "float16"):
        with pytest.raises(PolicyError, match="is not the one that was served") as refused:
            export(
                run,
                tmp_path / "out",
                base=altered(model_path("student"), tmp_path / dtype),
                dtype=dtype,
            )
        assert refused.value.exit_code == 2
    with pytest.raises(PolicyError, match="the adapter does not fit the base model"):
        export(run, tmp_path / "out", base=model_path("teacher"))
    with pytest.raises(PolicyError, match="contains no model with weights"):
        export(run, tmp_path / "out", base=tmp_path)
    assert sorted(place.name for place in tmp_path.iterdir()) == ["float16", "float32"]


def test_a_damaged_merged_folder_is_detected(run, tmp_path):
    export(run, tmp_path / "out", dtype="float32")
    served = recorded_answers(run.history, run.config, STEPS, any_temperature=True)
    require_same(difference(load_model(tmp_path / "out"), served), exact=True)
    damaged = altered(tmp_path / "out", tmp_path / "damaged")
    with pytest.raises(PolicyError, match="nats at most"):
        require_same(difference(load_model(damaged), served), exact=True)
    with pytest.raises(PolicyError, match="is not the one that was served"):
        require_same(Difference(float("nan"), float("nan"), 1, 1), exact=False)


def test_an_unknown_folder_of_the_base_is_an_error(run, tmp_path):
    tinker = run.config.tinker.model_copy(update={"base_url": "http://127.0.0.1:9"})
    elsewhere = Trained(run.history, run.config.model_copy(update={"tinker": tinker}))
    with pytest.raises(
        PolicyError, match=r"(?s)'student'.* were not found on this machine.*--base FOLDER"
    ):
        export(elsewhere, tmp_path / "out")


@pytest.mark.parametrize(
    "spec",
    [
        LoraSpec(rank=1, seed=0),
        LoraSpec(rank=64, seed=1, train_unembed=False),
        LoraSpec(rank=4, seed=2, train_attn=False, train_mlp=False),
        LoraSpec(rank=4, seed=3, train_mlp=False),
        LoraSpec(rank=4, seed=4, train_attn=False, train_unembed=False),
    ],
)
@pytest.mark.parametrize("tied", [True, False])
def test_adapters_of_every_rank_and_target_are_merged_also_with_a_tied_head(
    spec, tied, tmp_path
):
    model = load_model(model_path("student"), "float32")
    assert model.config.tie_word_embeddings
    if not tied:
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())
        model.config.tie_word_embeddings = False
    save_model(model, model_path("student"), tmp_path / "base", "float32")
    bank = AdapterBank(model)
    bank.add("one", spec)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in bank.parameters("one")[1::2]:
            weight.normal_(std=0.05)
    bank.activate("one")
    tokens = torch.arange(3, 40)[None]
    with torch.inference_mode():
        expected = model(tokens).logits
        bank.activate(None)
        bare = model(tokens).logits
    (tmp_path / "adapter").mkdir()
    write_adapter(tmp_path / "adapter", bank.tensors("one"), spec, "somewhere else")
    whole = merged(load_model(tmp_path / "base"), tmp_path / "adapter")
    save_model(whole, tmp_path / "base", tmp_path / "out", "float32")
    with torch.inference_mode():
        found = load_model(tmp_path / "out")(tokens).logits
    assert (bare - expected).abs().max() > 0.1
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_adapters_with_other_layers_or_more_than_a_low_rank_term_are_refused(tmp_path):
    model = load_model(model_path("student"), "float32")
    bank = AdapterBank(model)
    bank.add("one", LoraSpec(rank=4, seed=0))
    tensors = bank.tensors("one")
    write_adapter(tmp_path, tensors, LoraSpec(rank=4, seed=0), "")
    more = {"base_model.model.model.layers.0.mlp.experts.w1.lora_A.weight": torch.zeros(4, 8)}
    save_file({**tensors, **more}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(
        PolicyError, match=r"1 of \d+ tensors of the adapter fit no layer.*experts"
    ):
        merged(load_model(model_path("student"), "float32"), tmp_path)
    write_adapter(tmp_path, tensors, LoraSpec(rank=4, seed=0), "")
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(
        json.dumps({**config, "use_dora": True, "rank_pattern": {}})
    )
    with pytest.raises(PolicyError, match="not plain LoRA: its configuration sets use_dora"):
        merged(model, tmp_path)


def test_the_card_has_the_hubs_front_matter_and_the_figures_of_these_weights(run, tmp_path):
    wrong = invoke("admin", "checkpoints", "two", "--merged")
    assert (wrong.exit_code, "--export" in wrong.output) == (2, True)
    place = ("--export", tmp_path / "out", "--db", run.history.path)
    done = invoke("admin", "checkpoints", "two", "--merged", "--dtype", "float32", *place)
    assert done.exit_code == 0, done.output
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert (card.data.library_name, card.data.license, card.data.pipeline_tag) == ("transformers", "apache-2.0", "text-generation")  # fmt: skip
    assert card.data.get("base_model") is None  # `student` is not a name on the hub
    for words in (
        "| after 2 steps, these weights | 25.0 % [12.5, 50.0] |",
        "| student | 2 | heldout, single attempt |  | 0.250 | 0.125 to 0.500 |",
        "by rtl-distill 9.9: 2 optimizer steps",
        "template `bare`",
        "nats at most",
        "temperature=1.0",
    ):
        assert words in card.text, words


@pytest.fixture
def registry(run):
    """The registry of the embedded service, which is put back as it was."""
    file = run.config.run.folder / "tinker" / "registry.sqlite"
    before = file.read_bytes()
    with closing(sqlite3.connect(file)) as db:
        yield db
    file.write_bytes(before)


def listed(run, *more):
    """The title and the rows of the table of weights."""
    done = invoke("admin", "checkpoints", "two", "--db", run.history.path, *more, COLUMNS="200")
    assert done.exit_code == 0, done.output
    title, _, _, *rows = [line.strip() for line in done.output.splitlines() if line.strip()]
    return title, [" ".join(row.split()) for row in rows]


def test_the_list_of_weights_is_what_the_service_has(run, registry):
    first, second = (state.state_path for state in run.history.trained_steps("two"))
    title, rows = listed(run)
    assert (title, rows) == (
        "run 'two': weights on the service",
        [f"1 {first}", f"2 0.250 {second}"],
    )

    registry.execute("UPDATE checkpoints SET expires = 1 WHERE path = ?", [first])
    for name in ("two-000003", "two-start", "two-again-000001"):
        row = list(
            registry.execute("SELECT * FROM checkpoints WHERE path = ?", [second]).fetchone()
        )
        names = [column[1] for column in registry.execute("PRAGMA table_info(checkpoints)")]
        row[names.index("path")] = f"tinker://lost/weights/{name}"
        registry.execute(f"INSERT INTO checkpoints VALUES ({', '.join('?' * len(row))})", row)
    registry.commit()
    assert listed(run)[1] == [
        f"2 0.250 {second}",
        "3 tinker://lost/weights/two-000003 (of an interrupted attempt)",
    ]


def test_a_service_that_does_not_answer_is_named_above_what_the_history_says(run, monkeypatch):
    first = run.history.trained_steps("two")[0].state_path
    monkeypatch.setenv("TINKER_API_KEY", "tml-none")
    away = run.config.tinker.model_copy(update={"base_url": "http://127.0.0.1:9"})
    console = Console(width=300)
    with console.capture() as capture:
        console.print(
            asyncio.run(
                checkpoint_table(run.history, run.config.model_copy(update={"tinker": away}))
            )
        )
    assert (
        "weights on the service, by the history alone: the Tinker service did not complete"
        in capture.get()
    )
    assert first in capture.get()


def test_a_damaged_registry_of_the_service_leaves_what_the_history_says(run, tmp_path):
    first = run.history.trained_steps("two")[0].state_path
    section = run.config.run.model_copy(update={"directory": tmp_path})
    (tmp_path / "two" / "tinker").mkdir(parents=True)
    (tmp_path / "two" / "tinker" / "registry.sqlite").write_bytes(b"no database " * 500)
    elsewhere = run.config.model_copy(update={"run": section})
    console = Console(width=300)
    with console.capture() as capture:
        console.print(asyncio.run(checkpoint_table(run.history, elsewhere)))
    assert "by the history alone" in capture.get()
    assert first in capture.get()


@pytest.mark.slow
def test_a_language_model_of_135_million_parameters_is_exported_as_served(smollm2, tmp_path):
    folder = json.dumps(str(smollm2))
    names = (
        "tinker.student=smol",
        "tinker.teacher=smol",
        f"tinker.local_models={{smol = {folder}}}",
    )
    told = export(train(tmp_path, *names), tmp_path / "out", dtype="float32")
    assert "log-probabilities in float32 and the served ones differ by" in told[-1]
