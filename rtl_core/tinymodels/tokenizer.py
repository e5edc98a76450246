"""The tiny models' tokenizer: byte-level BPE over a split that keeps copied words whole.

Before BPE, text is split into keywords (with the space that follows them), words of names, one-letter
suffixes such as `_n`, numbers, and runs of punctuation. Each becomes one token, so that a model of half a
million parameters can copy an interface from its prompt. (Names with their suffix in one token were no
better.)
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from rtl_core.starter import BY_NAME, names
from rtl_core.tinymodels.corpus import FENCE_CLOSE, FENCE_OPEN, STUDENT, draw_pair

VOCABULARY = 1000
SAMPLES = 10_000
SEED = 5
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CALLS = (
    "{% for c in m['tool_calls'] or [] %}<call>{{ c['function']['name'] }}{% for k, v in "
    "c['function']['arguments'].items() %}"
    "<arg>{{ k }}={{ v }}</arg>{% endfor %}</call>{% endfor %}"
)
AGENT_TEMPLATE = CHAT_TEMPLATE.replace("{{ m['content'] }}", "{{ m['content'] }}" + _CALLS)
"""The chat with tool calls in the format of corpus.py. The tools are not described, because the agent knows
no others."""


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Train the tokenizer on prompts and answers of the train split. Deterministic."""
    texts = training_texts()
    tokenizer = Tokenizer(models.BPE())
    keywords = "|".join(sorted(_keywords(texts), key=lambda word: (-len(word), word)))
    pattern = (
        rf"(?:{keywords})(?![A-Za-z_]) ?|[A-Za-z]+|_[a-z](?![A-Za-z])|[0-9]+|_|[^A-Za-z0-9_]+"
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY - 2,
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            min_frequency=25,
            show_progress=False,
        ),
    )
    tokenizer.add_tokens(
        [AddedToken(fence, normalized=False) for fence in (FENCE_OPEN, FENCE_CLOSE)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        bos_token=None,
        model_max_length=1024,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def training_texts() -> list[str]:
    """Return the texts that a tokenizer is trained on: prompts and answers of the train split."""
    rng = random.Random(SEED)
    texts = ["user\n", "assistant\n"]
    for number in range(SAMPLES):
        prompt, answer = draw_pair(rng, STUDENT, progress=number / SAMPLES)
        texts += [prompt, answer.removeprefix(FENCE_OPEN).removesuffix(FENCE_CLOSE)]
    return texts


def _keywords(texts: Iterable[str]) -> set[str]:
    """Return the words that are never names: keywords of Verilog and English words of the prompts."""
    roles = [
        role for family in BY_NAME.values() for role in (*family.roles, family.textbook[0])
    ]
    not_keywords = {"user", "assistant"}
    for name in (*names.ALL, *roles):
        not_keywords |= {name, *name.split("_")}
    return {word for text in texts for word in re.findall(r"[A-Za-z]{2,}", text)} - not_keywords
