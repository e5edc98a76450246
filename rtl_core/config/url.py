"""The address of an OpenAI-compatible endpoint."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field


def _without_secrets(url: str) -> str:
    """Refuse an address that holds a password or a query: the configuration is stored and shown."""
    parts = urlsplit(url)
    if parts.username or parts.password or parts.query:
        raise ValueError(
            "an address with a user, a password or a query would be stored in the history; "
            "put the key into OPENAI_API_KEY"
        )
    return url


EndpointUrl = Annotated[str, Field(pattern=r"^https?://\S+$"), AfterValidator(_without_secrets)]
"""Base URL of an endpoint, without secrets."""
