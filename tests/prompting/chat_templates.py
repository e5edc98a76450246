"""Published chat templates (chat_templates.toml), a small byte-level tokenizer for each with its model's special tokens, and completions as
the model would continue a prompt."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

FIRST = "module first(input a, output y);\n  assign y = a ? 1'b1 : 1'b0 ;\nendmodule\n"
SECOND = "module second(input a, output y);\n  assign y = ~a;\nendmodule\n"
DRAFT = "```verilog\nmodule first(input a, output y);\n  assign y = 1'b0;\nendmodule\n```\n"
BLOCK = f"```verilog\n{FIRST}```"


@dataclass(frozen=True, eq=False)
class Model:
    """A published template (chat_templates.toml)."""

    file: str
    tokens: str
    end: tuple[str, ...]
    prompts: dict[bool | None, str | None]
    """prompting.thinking -> how the prompt ends; None if the setting is refused."""
    thinks: bool = False
    channels: bool = False
    bos: str | None = None


def _model(entry):
    prompts = {
        None: entry.pop("unset", None),
        True: entry.pop("thinking", None),
        False: entry.pop("plain", None),
    }
    return Model(prompts=prompts, **{**entry, "end": tuple(entry["end"])})


MODELS = tuple(
    map(
        _model,
        tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[
            "models"
        ],
    )
)


@dataclass(frozen=True)
class Case:
    """A completion and its files (target -> text); none if it ends within its thoughts."""

    completion: str
    ended: bool
    files: dict[str, str]


def tokenizer_of(model, folder):
    """A byte-level BPE tokenizer with the model's chat template and its tokens."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=alphabet, show_progress=False
    )
    plain.train_from_iterator([FIRST, SECOND, DRAFT], trainer)
    names = model.tokens.split()
    plain.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in names]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token=names[0], bos_token=model.bos
    )
    tokenizer.chat_template = (folder / f"{model.file}.jinja").read_text(encoding="utf-8")
    return tokenizer


def cases(chat, opening):
    """Completions of a prompt that ends with `opening`: a finished thought, an unfinished one with a full draft, none, a thought between two texts,
    and an answer of two files."""
    one = {"rtl/first.sv": FIRST}
    thought = f"A wire? First a draft:\n{DRAFT}No: y follows a."
    two = f"`rtl/first.sv`:\n{BLOCK}\nAnd `rtl/second.sv`:\n```verilog\n{SECOND}```"
    if opening.startswith("<|start|>"):
        analysis, final = "<|channel|>analysis<|message|>", "<|channel|>final<|message|>"
        begun, closed = analysis, f"<|end|>{opening}{final}"
        plan = f"<|channel|>commentary<|message|>A plan.<|end|>{opening}"
        again = f"{plan}{analysis}{thought}{closed}"
        straight = final
    else:
        begun, closed = ("" if opening else "<think>\n"), "\n</think>\n\n"
        first = f"{begun}{thought}{closed}" if opening else ""
        again = f"{first}A plan.\n<think>\n{DRAFT}</think>\n"
        straight = chat.lead if opening else ""
    yield Case(f"{begun}{thought}{closed}{BLOCK}", True, one)
    yield Case(f"{begun}{thought}\n{BLOCK}\nThat is", False, {})
    yield Case(f"{straight}{BLOCK}", True, one)
    yield Case(f"{again}So it is:\n{BLOCK}\nIt has no `</think>`.", True, one)
    yield Case(f"{begun}{thought}{closed}{two}", True, {**one, "rtl/second.sv": SECOND})
