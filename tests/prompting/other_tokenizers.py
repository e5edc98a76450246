"""Tokenizers of several kinds, trained on Verilog, and random answers with everything that is hard to tokenise."""

import random

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from rtl_core.tinymodels.tokenizer import training_texts

TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|done|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|pad|>", "<|user|>", "<|system|>", "<|assistant|>", "<|done|>"]
ODD = (
    "é", "e\u0301", "한", "\u1112\u1161\u11ab", "🙂", "👩‍🔬", "🇩🇪", "→", "≤", "\u00a0", "\u2028", "日本語", "ﬁ", "\t", "\r\n", "\r", "  ",
    "\n\n\n", "\x00", "\x7f", "▁", "##", "<0x0A>", "Ġ", "�", "``", "```", "<|im_end|>", "<|done|>", "<|endoftext|>", "<tool_call>",
    "[INST]", "<s>", "\ufeff", "İ", "ß",
)  # fmt: skip


def _fast(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|done|>",
        pad_token="<|pad|>",
        bos_token=None,
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = TEMPLATE
    return fast


def _texts() -> list[str]:
    return training_texts()[:2000]


def byte_level(size: int = 500) -> PreTrainedTokenizerFast:
    """BPE on bytes, like those of GPT, Llama 3 and Qwen."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    return _fast(tokenizer)


def normalising() -> PreTrainedTokenizerFast:
    """The same with NFC, like Qwen's."""
    fast = byte_level(420)
    fast.backend_tokenizer.normalizer = normalizers.NFC()
    return fast


def sentencepiece(prefix: bool) -> PreTrainedTokenizerFast:
    """Unigrams with bytes for what they lack, with or without a space before the text: Llama 2, Gemma."""
    letters = sorted({letter for text in _texts() for letter in text.replace(" ", "▁")})
    pieces = [(letter, -8.0) for letter in letters]
    words = sorted({word for text in _texts() for word in text.split() if len(word) > 1})
    pieces += [("▁" + word, -7.0) for word in words] + [(word, -7.5) for word in words[::2]]
    known = {piece for piece, _ in pieces}
    pieces += [
        (f"<0x{byte:02X}>", -20.0) for byte in range(256) if f"<0x{byte:02X}>" not in known
    ]
    tokenizer = Tokenizer(models.Unigram([("<unk>", -30.0), *pieces], 0, byte_fallback=True))
    scheme = "first" if prefix else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in SPECIAL])
    return _fast(tokenizer)


def wordpiece() -> PreTrainedTokenizerFast:
    """Pieces of lower-case words, without white space, like BERT's: it does not keep the text."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(
        vocab_size=400, special_tokens=["[UNK]", *SPECIAL], show_progress=False
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    return _fast(tokenizer)


def random_answer(rng: random.Random, texts: list[str]) -> str:
    """Verilog of the starter set with odd characters, broken words and text that looks like special tokens."""
    text = rng.choice(texts)
    for _ in range(rng.choice((0, 1, 2, 8))):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(ODD) + text[at:]
    if rng.random() < 0.1:
        text = "".join(rng.choice(ODD) for _ in range(rng.randrange(8)))
    return text.replace("\n", "\r\n") if rng.random() < 0.1 else text


def as_sampled(rng: random.Random, tokenizer, text: str) -> list[int]:
    """Tokens of a text as a model may sample them: not the tokenizer's choice, but with random cuts."""
    tokens, at = [], 0
    while at < len(text):
        cut = at + rng.choice((1, 2, 3, 9, 40, 200))
        tokens += tokenizer.encode(
            text[at:cut], add_special_tokens=False, split_special_tokens=True
        )
        at = cut
    return tokens
