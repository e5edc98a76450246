"""Tokenizers of published models, each read once."""

from functools import cache

import pytest


@pytest.fixture(scope="session")
def tokenizers(data):
    from tests.prompting.chat_templates import tokenizer_of

    return cache(lambda model: tokenizer_of(model, data / "chat-templates"))
