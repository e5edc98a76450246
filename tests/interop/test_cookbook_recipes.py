"""The tinker-cookbook's own recipes, unchanged, train and chat with the embedded service (`make test-cookbook`).

A recipe is started by its command, with its own options. It names models and data sets of the hub, which are
found in the folder where it starts: `datasets` and the cookbook's tokenizers prefer a folder of that name.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from localtinker.process import LocalTinker

pytestmark = pytest.mark.cookbook
PACKAGES = Path(__file__).parents[2] / "build/cookbook"
STUDENT, TEACHER = "Qwen/Qwen3-8B-Base", "Qwen/Qwen3-8B"
"""Names that the cookbook knows a chat format for. The models behind them are tiny and random."""
GUESSES = ("\\boxed{3}", "\\boxed{5}")
"""Tokens of the models, so that a random answer is sometimes right."""
TALKS, QUESTIONS = 256, 16
"""Rows of the data sets. A recipe whose batch size cannot be chosen takes 128, or all."""
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}


def write_model(folder: Path, seed: int) -> None:
    """Write a model with random weights and a tokenizer of bytes and guesses. Nearly all of its tokens are
    equally likely, so an answer of 32 tokens holds a guess in one case of five."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    plain.train_from_iterator([], trainer)
    plain.add_tokens([AddedToken(guess, normalized=False) for guess in GUESSES])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token="<end>")
    torch.manual_seed(seed)
    config = LlamaConfig(vocab_size=len(tokenizer), **SIZES)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def write_rows(file: Path, rows: list[dict]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def write_data_sets(place: Path) -> None:
    """Write small data sets under the names that the recipes load."""
    talk = [
        {"role": "user", "content": "What drives y?"},
        {"role": "assistant", "content": "assign y = a & b;"},
    ]
    for split in ("train", "test"):
        rows = [{"messages": talk}] * TALKS
        write_rows(place / f"HuggingFaceH4/no_robots/{split}.jsonl", rows)
        sums = [{"question": f"{i} and 3 - {i}?", "answer": "#### 3"} for i in range(QUESTIONS)]
        write_rows(place / f"openai/gsm8k/{split}.jsonl", sums)
    # gsm8k is loaded by the name of a part, which a folder declares in its card.
    (place / "openai/gsm8k/README.md").write_text(
        "---\nconfigs:\n- config_name: main\n  data_files:\n"
        "  - {split: train, path: train.jsonl}\n  - {split: test, path: test.jsonl}\n---\n"
    )
    questions = [{"question": f"Name gate {i}."} for i in range(QUESTIONS)]
    write_rows(place / "zwhe99/DeepMath-103K/train.jsonl", questions)
    write_rows(place / "talks.jsonl", [{"messages": talk}] * TALKS)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with models, tokenizers and data sets under their names on the hub."""
    folder = tmp_path_factory.mktemp("recipes")
    for seed, name in enumerate((STUDENT, TEACHER)):
        write_model(folder / name, seed)
    write_data_sets(folder)
    return folder


@pytest.fixture(scope="module")
def service(place):
    served = {name: place / name for name in (STUDENT, TEACHER)}
    with LocalTinker(served, place / "state") as local:
        yield local


@pytest.fixture
def recipe(place, service):
    """A function that runs a module of the cookbook with options and returns what it printed."""

    def run(module: str, *options: str, typed: str = "") -> str:
        environment = {
            **os.environ,
            "PYTHONPATH": str(PACKAGES),
            "TINKER_API_KEY": service.api_key,
            "HF_HOME": str(place / "hub"),
            "HF_HUB_OFFLINE": "1",
        }
        command = [sys.executable, "-m", f"tinker_cookbook.{module}", *options]
        done = subprocess.run(
            [*command, f"base_url={service.base_url}"],
            cwd=place, env=environment, input=typed, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return done.stdout

    return run


def metrics(place: Path, name: str, key: str) -> list[float]:
    """Values of a metric that a recipe logged into the folder `name`, by step."""
    lines = (place / name / "metrics.jsonl").read_text().splitlines()
    values = [json.loads(line).get(key) for line in lines]
    return [value for value in values if value is not None]


def saved(place: Path, name: str) -> dict:
    """The last checkpoint that a recipe recorded."""
    lines = (place / name / "checkpoints.jsonl").read_text().splitlines()
    return json.loads(lines[-1])


def test_sl_loop_learns(place, recipe):
    options = ("batch_size=64", "max_steps=4", "learning_rate=1e-2", "lora_rank=8")
    recipe("recipes.sl_loop", f"model_name={STUDENT}", "log_path=sl-loop", *options)
    losses = metrics(place, "sl-loop", "train_mean_nll")
    assert len(losses) == 4
    assert losses[0] == pytest.approx(math.log(259), abs=0.2)
    assert losses[-1] < losses[0] - 0.3
    assert saved(place, "sl-loop")["state_path"].startswith("tinker://")


def test_rl_loop_trains_on_guesses(place, recipe):
    options = ("batch_size=8", "group_size=16", "max_steps=2", "max_tokens=32", "lora_rank=8")
    recipe("recipes.rl_loop", f"model_name={STUDENT}", "log_path=rl-loop", *options)
    rewards = metrics(place, "rl-loop", "reward/total")
    assert len(rewards) == 2
    assert all(0 < reward < 1 for reward in rewards)
    # Logged by optim_step only: a step whose groups have equal rewards is skipped.
    assert len(metrics(place, "rl-loop", "grad_norm:mean")) == 2
    assert saved(place, "rl-loop")["sampler_path"].startswith("tinker://")


def test_sl_basic_learns(place, recipe):
    options = ("learning_rate=1e-2", "lora_rank=8", "eval_every=0")
    recipe("recipes.sl_basic", f"model_name={STUDENT}", "log_path=sl-basic", *options)
    losses = metrics(place, "sl-basic", "train_mean_nll")
    assert len(losses) == TALKS / 128
    assert losses[-1] < losses[0]


def test_rl_basic_trains_on_guesses(place, recipe):
    options = ("max_tokens=32", "max_steps=1", "lora_rank=8")
    recipe("recipes.rl_basic", f"model_name={STUDENT}", "log_path=rl-basic", *options)
    (reward,) = metrics(place, "rl-basic", "env/all/correct")
    assert 0 < reward < 1


def test_on_policy_distillation_hears_its_teacher(place, recipe):
    recipe(
        "recipes.distillation.on_policy_distillation",
        f"model_name={STUDENT}", f"teacher_model={TEACHER}", "log_path=distilled", "groups_per_batch=8",
        "max_tokens=16", "max_steps=2", "lora_rank=8", "eval_every=0", "save_every=0",
    )  # fmt: skip
    kls = metrics(place, "distilled", "teacher_kl")
    assert len(kls) == 2
    assert all(math.isfinite(kl) and kl != 0 for kl in kls)


def test_the_chat_recipe_learns_and_its_weights_chat(place, recipe):
    recipe(
        "recipes.chat_sl.train",
        f"model_name={STUDENT}", "dataset=talks.jsonl", "log_path=chat", "batch_size=64", "learning_rate=1e-2",
        "lora_rank=8", "max_steps=2", "eval_every=0",
    )  # fmt: skip
    losses = metrics(place, "chat", "train_mean_nll")
    assert losses[-1] < losses[0]
    weights = saved(place, "chat")["sampler_path"]
    printed = recipe(
        "chat_app.tinker_chat_cli",
        f"base_model={STUDENT}", f"model_path={weights}", "max_tokens=16", typed="Hello\nquit\n",
    )  # fmt: skip
    assert "Assistant: " in printed
    assert "Error" not in printed
