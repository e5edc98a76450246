"""Numbers of settings and records with bounds that pydantic has no name for."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(gt=0, le=1)]
