"""The teacher of the setting `hard-spans`: the hard teacher, carried over to another vocabulary.

    python -m benchmarks.learning.foreign          # build/learning/foreign-teacher, about 25 minutes on one core

If it is there, it is only evaluated.

Its tokenizer is another split (words with the space before them, where the tiny models have the space after a
keyword), other merges, no fence tokens and another chat template. An embedding starts as the mean of the
embeddings that the old tokenizer gives its text; then all weights are trained like the hard teacher's.
"""

import asyncio
import hashlib
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3ForCausalLM

from rtl_core.config import to_toml
from rtl_core.history.store import History
from rtl_core.tinymodels import make, model_path
from rtl_core.tinymodels.corpus import HARD_TEACHER
from rtl_core.tinymodels.tokenizer import training_texts

NAME = "foreign-teacher"
FOLDER = Path("build/learning") / NAME
VOCABULARY = 900
STEPS = 2000
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|done|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_RECIPE = make.Recipe(
    make.RECIPES["hard-teacher"].shape,
    HARD_TEACHER,
    steps=STEPS,
    rates=make.Rates(matrices=0.01, rest=4e-3),
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train the tokenizer on the tiny models' text. Deterministic."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|pad|>", "<|user|>", "<|assistant|>", "<|done|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|done|>",
        pad_token="<|pad|>",
        bos_token=None,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def make_teacher(folder: Path = FOLDER) -> None:
    """Train the teacher and write its folder."""
    torch.set_num_threads(1)  # as fast as two, and leaves a core to others
    tokenizer = make_tokenizer()
    old = AutoTokenizer.from_pretrained(model_path("hard-teacher"))
    before = Qwen3ForCausalLM.from_pretrained(model_path("hard-teacher"), dtype=torch.float32)
    model = make.new_model(_RECIPE, tokenizer)
    embedding, given = (
        cast(torch.nn.Embedding, one.get_input_embeddings()).weight.data
        for one in (model, before)
    )
    rows = embedding.clone()
    chat = {"<|done|>": "<|im_end|>", "<|assistant|>": "assistant\n", "<|user|>": "user\n"}
    for token in range(len(tokenizer)):
        text = str(tokenizer.decode([token]))
        pieces = old.encode(chat.get(text, text), add_special_tokens=False)
        if pieces:
            rows[token] = given[pieces].mean(0)
    kept = {name: w for name, w in before.state_dict().items() if w.shape[0] != given.shape[0]}
    model.load_state_dict(kept, strict=False)
    embedding.copy_(rows)

    def report(step: int, loss: float, elapsed: float) -> None:
        print(f"step {step}, loss {loss:.4f} per answer token, {elapsed:.0f} s", flush=True)

    make.pretrain(model, tokenizer, _RECIPE, float("inf"), report)
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def recipe_hash() -> str:
    """Hash of what the teacher is made of, for the cells of the ledger; the teacher need not be there."""
    start = (model_path("hard-teacher") / "model.safetensors").read_bytes()
    made_of = repr((VOCABULARY, CHAT_TEMPLATE, _RECIPE)).encode()
    return hashlib.sha256(made_of + start).hexdigest()


def evaluate() -> str:
    """Return the teacher's pass@1 on the hard tier's test problems, with its interval over problems."""
    # Both import settings.py, which imports this module.
    from benchmarks.learning.settings import SETTINGS, config_of
    from rtl_distill.flows.evaluate import evaluate_model

    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        overrides = (
            'run.purpose="evaluation"',
            f'tinker.student="{NAME}"',
            "problems.sources.0.train=1",
            "learning.kl_weight=0.0",
            "learning.reward_weight=1.0",
            f"tinker.local_models.{NAME}={FOLDER}",
        )
        config = config_of(SETTINGS["hard-spans"], 0, folder, overrides)
        file = folder / "settings.toml"
        file.write_text(to_toml(config), encoding="utf-8")
        asyncio.run(evaluate_model(str(file)))
        (record,) = History(config.run.history, read_only=True).evaluations(config.run.name)
        return f"pass@1 {record.pass_at_1:.3f} [{record.lo:.3f}, {record.hi:.3f}], {record.n_problems} problems"


if __name__ == "__main__":
    if not FOLDER.exists():
        make_teacher()
    print(evaluate())
