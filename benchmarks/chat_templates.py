"""How published chat templates handle thoughts and answers: how a prompt ends, what ends a turn, and whether answers are read correctly.

    RTL_DISTILL_DATA=../shared/data python -m benchmarks.chat_templates      # templates: FOLDER/chat-templates/*.jinja

Each template gets a small byte-level tokenizer with its model's special tokens. Completions are written as the model would continue the prompt,
encoded, decoded, and read as in a run. Exits with 1 if one is read wrongly.
"""

import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from benchmarks.common import DATA, show
from rtl_core.errors import ConfigError
from rtl_core.prompting.chat import Chat, answer_text
from rtl_core.prompting.extraction import extract_answer
from rtl_core.types.answer import Answer

FIRST = "module first(input a, output y);\n  assign y = a ? 1'b1 : 1'b0 ;\nendmodule\n"
SECOND = "module second(input a, output y);\n  assign y = ~a;\nendmodule\n"
DRAFT = "```verilog\nmodule first(input a, output y);\n  assign y = 1'b0;\nendmodule\n```\n"
BLOCK = f"```verilog\n{FIRST}```"
WITHIN = "ends within its thoughts"


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


def _model(entry: dict[str, Any]) -> Model:
    prompts = {None: entry.pop("unset", None), True: entry.pop("thinking", None), False: entry.pop("plain", None)}
    return Model(prompts=prompts, **{**entry, "end": tuple(entry["end"])})


MODELS = tuple(map(_model, tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["models"]))


@dataclass(frozen=True)
class Case:
    """A completion and its files (target -> text); none if it ends within its thoughts."""

    name: str
    completion: str
    ended: bool
    files: dict[str, str]


CASES = ("finished thought", "unfinished, full draft", "no thought", "text, thought, text", "two files")


def tokenizer_of(model: Model, folder: Path) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer with the model's chat template and its tokens."""
    plain = Tokenizer(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    plain.train_from_iterator([FIRST, SECOND, DRAFT], trainer)
    names = model.tokens.split()
    plain.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=plain, eos_token=names[0], bos_token=model.bos)
    tokenizer.chat_template = (folder / f"{model.file}.jinja").read_text(encoding="utf-8")
    return tokenizer


def cases(chat: Chat, opening: str) -> Iterator[Case]:
    """Completions of a prompt that ends with `opening`, in the order of `CASES`."""
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
    yield Case(CASES[0], f"{begun}{thought}{closed}{BLOCK}", True, one)
    yield Case(CASES[1], f"{begun}{thought}\n{BLOCK}\nThat is", False, {})
    yield Case(CASES[2], f"{straight}{BLOCK}", True, one)
    yield Case(CASES[3], f"{again}So it is:\n{BLOCK}\nIt has no `</think>`.", True, one)
    yield Case(CASES[4], f"{begun}{thought}{closed}{two}", True, {**one, "rtl/second.sv": SECOND})


def answer_of(chat: Chat, case: Case, prompt_P: list[int]) -> Answer:
    """What a run takes from a completion: to tokens as they are sampled, to the rollout's text, to files."""
    end = [chat.stop[0]] if case.ended else []
    tokens_T = [*chat.tokenizer.encode(case.completion, add_special_tokens=False), *end]
    text, ended = answer_text(chat.tokenizer, tokens_T, chat.stop)
    assert ended == case.ended
    return extract_answer(chat.opening(prompt_P) + text, list(case.files) or ["rtl/first.sv"])


def is_right(answer: Answer, case: Case) -> bool:
    """Whether the files are those of the case, or there is rightly no answer."""
    return answer.files == case.files and (bool(case.files) or WITHIN in (answer.error or ""))


def main() -> int:
    """Print the table; return 1 if a prompt has another end than expected or an answer is read wrongly."""
    folder = DATA / "chat-templates"
    if not folder.is_dir():
        print(f"{folder} is missing: set RTL_DISTILL_DATA to the folder that holds chat-templates", file=sys.stderr)
        return 2
    columns = ("template", "thinking", "prompt opens", "a turn ends with", *CASES)
    rows, wrong = [], 0
    for model in MODELS:
        tokenizer = tokenizer_of(model, folder)
        for thinking, ending in model.prompts.items():
            setting = {None: "-", True: "true", False: "false"}[thinking]
            try:
                chat = Chat(tokenizer, thinking=thinking, model=model.file)
            except ConfigError as error:
                wrong += ending is not None
                why = f"refused: {error.message.partition(model.file)[2].strip()}"
                rows.append((model.file, setting, why, *[""] * (len(columns) - 3)))
                continue
            prompt_P = chat.encode([{"role": "user", "content": "Write it."}])
            found = [is_right(answer_of(chat, case, prompt_P), case) for case in cases(chat, chat.opening(prompt_P))]
            expected = ending is not None and tokenizer.decode(prompt_P).endswith(ending)
            wrong += found.count(False) + (not expected)
            ends = " ".join(tokenizer.decode([end]) for end in chat.stop)
            opening = chat.opening(prompt_P).strip() or ("- (the model does)" if chat.thinks else "-")
            rows.append((model.file, setting, opening, ends, *("right" if ok else "WRONG" for ok in found)))
    show("Answers read right", columns, rows, width=200)
    print(f"{wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
