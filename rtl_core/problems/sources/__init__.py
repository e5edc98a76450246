"""What a problem source is. Each file of this package is one: it registers its kind, and holds settings and reader.

A source of your own is the same class in a module of yours, and its kind is `module:Class`.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from inspect import isabstract
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, SerializeAsAny, ValidationError

from rtl_core.errors import ConfigError
from rtl_core.problems.design import Design, held_out
from rtl_core.problems.problem_set import LoadedProblems, ProblemSet
from rtl_core.registry import Registry
from rtl_core.types.problem import Problem
from rtl_core.types.section import Section

HeldoutSplit = Literal["heldout", "test"]


class ProblemSource(Section):
    """The settings of one problem set, and how it is read. Derive from `FileSource` or `GeneratedSource`."""

    kind: str
    """Which problem source: a kind that `rtl-distill problems sources` lists, or `module:Class` for one of your own."""
    form: ClassVar[str] = ""
    """What follows the kind on a command line."""

    @classmethod
    @abstractmethod
    def from_text(cls, kind: str, text: str) -> Self:
        """The source that a command line names as `kind` or `kind=text`. Raises ConfigError."""

    @abstractmethod
    def add_to(self, loaded: LoadedProblems, seed: int) -> None:
        """Add the problems to both splits, `seed` being the run's. Raises ProblemError when there is nothing to read."""

    def with_split(self, split: HeldoutSplit) -> Self:
        """The same source with `split` as its held-out problems. Raises ConfigError where it has none of that name."""
        if split != "heldout":
            raise ConfigError(f"source {self.kind} has no split kept apart for tests", "evaluate on --split heldout")
        return self


class FileSource(ProblemSource):
    """A set in files, part of which is held out."""

    path: Path
    """The file or folder to read."""
    heldout_fraction: float = Field(default=0.2, ge=0, lt=1)
    """Share of the designs that is held out, chosen by the hash of their names, so that none changes sides as the set grows; with
    `problems.split = "id"` of the problems, by their fingerprints. Near-duplicates of what is held out add to it."""
    form = "=PATH"
    published: ClassVar[tuple[int, float] | None] = None
    """Problems of the public set that open tools can grade, and assumed mean tokens of a prompt: for estimates without the files."""

    @abstractmethod
    def read(self) -> ProblemSet:
        """All problems in a fixed order. Raises ProblemError when there is nothing to read."""

    def design_of(self, problem: Problem) -> Design:
        """The design that a problem is about: all of one design stand on one side of the split. Here each is its own."""
        return Design(problem.id)

    @classmethod
    def how_to_get(cls, path: Path) -> str:
        """What to do when there is nothing at `path`."""
        return "put it there or change the path"

    @classmethod
    def from_text(cls, kind: str, text: str) -> Self:
        """All of `text`, a path, nothing held out."""
        if not text:
            raise ConfigError("where is it?", f"write {kind}{cls.form}")
        if not Path(text).exists():
            raise ConfigError(f"there is no {text}", cls.how_to_get(Path(text)))
        return cls(kind=kind, path=Path(text), heldout_fraction=0.0)

    def add_to(self, loaded: LoadedProblems, seed: int) -> None:
        found = self.read()
        loaded.broken += found.broken
        loaded.left_out += found.left_out
        for problem in found.problems:
            digest = problem.fingerprint
            if loaded.split == "design":
                design = loaded.designs[problem.id] = self.design_of(problem)
                digest = design.digest
            held = held_out(digest, self.heldout_fraction)
            (loaded.heldout if held else loaded.train).append(problem)


class GeneratedSource(ProblemSource):
    """A set that is made on demand with its harnesses, in three splits that share no specification."""

    train: int = Field(default=160, ge=1)
    """How many training problems to make."""
    heldout: int = Field(default=64, ge=0)
    """How many held-out problems to make; they never share a specification with training. 0: the source is for training alone."""
    seed: int | None = None
    """Which training problems are made; left out, those of `run.seed`. With a seed of its own, runs of several seeds share them and what
    validation found of them."""
    heldout_split: HeldoutSplit = "heldout"
    """Which held-out specifications: `heldout` while tuning, `test` for figures that are reported."""

    @abstractmethod
    def make(self, split: Literal["train", "heldout", "test"], count: int, seed: int) -> list[Problem]:
        """`count` problems of a split, each with `generated` set, the same for the same arguments. Raises ProblemError."""

    @classmethod
    def from_text(cls, kind: str, text: str) -> Self:
        """As many problems as the defaults say. Raises ConfigError for a text."""
        if text:
            raise ConfigError("this source is made, not read", f"write {kind}{cls.form}")
        return cls(kind=kind)

    def add_to(self, loaded: LoadedProblems, seed: int) -> None:
        loaded.train += self.make("train", self.train, seed if self.seed is None else self.seed)
        if self.heldout:
            # The held-out problems are the same for every seed of a run, so that runs can be compared.
            loaded.heldout_split = self.heldout_split
            loaded.heldout += self.make(self.heldout_split, self.heldout, 0)

    def with_split(self, split: HeldoutSplit) -> Self:
        return self.model_copy(update={"heldout_split": split})


SOURCES: Registry[type[ProblemSource]] = Registry(
    "source",
    __name__,
    lambda entry: isinstance(entry, type) and issubclass(entry, ProblemSource) and not isabstract(entry),
)


class _Kind(BaseModel):
    """The one key that every source has. Checked first, so that an error stands at `kind`."""

    kind: Annotated[str, AfterValidator(SOURCES.known)]


def _by_kind(value: Any) -> Any:
    """A table of the configuration, read with the settings of its kind."""
    return SOURCES.find(_Kind.model_validate(value).kind).model_validate(value) if isinstance(value, Mapping) else value


Source = Annotated[SerializeAsAny[ProblemSource], BeforeValidator(_by_kind)]
"""An entry of `problems.sources`: any registered source, or one of the user's own."""


def source_of(text: str, option: str = "--source") -> ProblemSource:
    """The source that a command line names after `option`: `starter`, `cvdp=PATH`, ...; nothing of files is held out.

    Raises ConfigError when the kind is unknown or the text does not suit it.
    """
    kind, _, rest = text.partition("=")
    try:
        return SOURCES.find(kind).from_text(kind, rest)
    except ConfigError as error:
        raise ConfigError(f"{option} {text}: {error.message}", error.hint) from None
    except ValidationError as error:
        raise ConfigError(f"{option} {text}: {error.errors()[0]['msg']}") from None


def override_of(texts: Sequence[str], option: str = "--source") -> str:
    """The sources of a command line as a `--set` text, for a flow that takes a configuration and overrides."""
    entries = [source_of(text, option).model_dump(mode="json", exclude_none=True) for text in texts]
    tables = (
        "{" + ", ".join(f"{key} = {json.dumps(value)}" for key, value in entry.items()) + "}" for entry in entries
    )
    return f"problems.sources=[{', '.join(tables)}]"
