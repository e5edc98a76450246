"""Problem sources, and the function that reads those of a configuration. Each file of this package
registers a kind of source.

A source of your own is such a class in your own module; its kind is `module:Class`.
"""

from __future__ import annotations

import glob
import json
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from inspect import isabstract
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    SerializeAsAny,
    ValidationError,
)

from rtl_grader.errors import ConfigError, ProblemError
from rtl_grader.problems.design import Design, held_out
from rtl_grader.problems.near_duplicates import separate
from rtl_grader.problems.problem_set import (
    LoadedProblems,
    ProblemSet,
    SplitBy,
    leave_out_near_duplicates,
)
from rtl_grader.registry import Registry
from rtl_grader.types.problem import Problem
from rtl_grader.types.section import Section

HeldoutSplit = Literal["heldout", "test"]


class ProblemSource(Section):
    """Settings and reader of a problem set. Derive from `FileSource` or `GeneratedSource`."""

    kind: str
    """Kind of problem source: one that `rtl-grader problems sources` lists, or `module:Class` for your own."""
    form: ClassVar[str] = ""
    """Text after the kind on a command line."""

    @classmethod
    @abstractmethod
    def from_text(cls, kind: str, text: str) -> Self:
        """Return the source for `kind` or `kind=text` on a command line. Raises ConfigError."""

    @abstractmethod
    def add_to(self, loaded: LoadedProblems, seed: int) -> None:
        """Add the problems to both splits; `seed` is the run's. Raises ProblemError when there is nothing to read."""

    def with_split(self, split: HeldoutSplit) -> Self:
        """Return the source with `split` as its held-out problems. Raises ConfigError when it has no such split."""
        if split != "heldout":
            raise ConfigError(
                f"source {self.kind} has no separate test split", "evaluate on --split heldout"
            )
        return self


class FileSource(ProblemSource):
    """A set read from files, part of which is held out."""

    path: Path
    """The file or folder to read."""
    heldout_fraction: float = Field(default=0.2, ge=0, lt=1)
    """Share of the designs that is held out, chosen by the hash of their names, so that none changes sides
    as the set grows. With `problems.split = "id"` the share of the problems, chosen by fingerprint.
    Near-duplicates of held-out problems add to it. Above 0 at least one design of several is held out: if
    the share chooses none, that of the smallest hash."""
    train_problems: int | None = Field(default=None, ge=1)
    """Train on so many problems, chosen by the same hashes, and on the rest of the last one's design. Default: on all.
    Evaluation runs and `problems.exclude` always use the whole set."""
    form = "=PATH"
    published: ClassVar[tuple[int, float] | None] = None
    """(gradable problems of the public set, assumed mean prompt tokens), for estimates without the files."""

    @property
    def assumed(self) -> tuple[int, float] | None:
        """The same for the files at `path`, as far as it is known without them."""
        return self.published

    @abstractmethod
    def read(self) -> ProblemSet:
        """Return all problems in a fixed order. Raises ProblemError when there is nothing to read."""

    def design_of(self, problem: Problem) -> Design:
        """Design of a problem; the split keeps a design together. By default each problem is its own design."""
        return Design(problem.id)

    @property
    def is_whole(self) -> bool:
        """Whether all problems of the set are used."""
        return True

    @classmethod
    def is_there(cls, path: Path) -> bool:
        """Whether there is something to read at `path`, which may be a glob."""
        return path.exists() or bool(glob.glob(str(path), recursive=True))

    @classmethod
    def how_to_get(cls, path: Path) -> str:
        """Hint for a missing `path`."""
        return f"put it there or change the path{'' if path.is_absolute() else f', which begins at {Path.cwd()}'}"

    @classmethod
    def from_text(cls, kind: str, text: str) -> Self:
        """Return the source at the path `text`, with nothing held out."""
        if not text:
            raise ConfigError("where is it?", f"write {kind}{cls.form}")
        if not cls.is_there(Path(text)):
            raise ConfigError(f"there is no {text}", cls.how_to_get(Path(text)))
        return cls(kind=kind, path=Path(text), heldout_fraction=0.0)

    def add_to(self, loaded: LoadedProblems, seed: int) -> None:
        contents = self.read()
        loaded.broken += contents.broken
        loaded.left_out += contents.left_out
        digests: dict[str, str] = {}
        for problem in contents.problems:
            digests[problem.id] = problem.fingerprint
            if loaded.split == "design":
                design = loaded.designs[problem.id] = self.design_of(problem)
                digests[problem.id] = design.digest
        chosen = {d for d in digests.values() if held_out(d, self.heldout_fraction)}
        train, heldout = _sides(contents.problems, digests, chosen)
        if self.heldout_fraction and train and not heldout:
            rest, first = _sides(contents.problems, digests, {min(digests.values())})
            if separate(rest, first, loaded.compared_designs)[0]:
                train, heldout = rest, first
        loaded.heldout += heldout
        most = self.train_problems
        if most is not None and len(train) > most:
            last = sorted(digests[problem.id] for problem in train)[most - 1]
            train = [problem for problem in train if digests[problem.id] <= last]
        loaded.train += train


class GeneratedSource(ProblemSource):
    """A set generated on demand with its harnesses, in three splits that share no specification."""

    train: int = Field(default=160, ge=1)
    """Number of training problems."""
    heldout: int = Field(default=64, ge=0)
    """Number of held-out problems; they never share a specification with training problems. 0: for training only."""
    seed: int | None = None
    """Seed of the training problems; by default `run.seed`. With its own seed, runs of several seeds share
    the problems and their validation."""
    heldout_split: HeldoutSplit = "heldout"
    """Which held-out specifications: `heldout` while tuning, `test` for reported figures."""

    @abstractmethod
    def make(
        self, split: Literal["train", "heldout", "test"], count: int, seed: int
    ) -> list[Problem]:
        """Return `count` problems of a split with `generated` set, equal for equal arguments. Raises ProblemError."""

    @classmethod
    def from_text(cls, kind: str, text: str) -> Self:
        """Return the source with default settings. Raises ConfigError when there is a text."""
        if text:
            raise ConfigError("this source is generated, not read", f"write {kind}{cls.form}")
        return cls(kind=kind)

    def add_to(self, loaded: LoadedProblems, seed: int) -> None:
        loaded.train += self.make("train", self.train, seed if self.seed is None else self.seed)
        if self.heldout:
            # Held-out problems do not depend on the run's seed, so that runs can be compared.
            loaded.heldout_split = self.heldout_split
            loaded.heldout += self.make(self.heldout_split, self.heldout, 0)

    def with_split(self, split: HeldoutSplit) -> Self:
        return self.model_copy(update={"heldout_split": split})


def _sides(
    problems: Iterable[Problem], digests: Mapping[str, str], heldout: Collection[str]
) -> tuple[list[Problem], list[Problem]]:
    """The problems whose digests are not held out, and those whose digests are."""
    sides: tuple[list[Problem], list[Problem]] = [], []
    for problem in problems:
        sides[digests[problem.id] in heldout].append(problem)
    return sides


def _is_source(entry: Any) -> bool:
    is_kind = isinstance(entry, type) and issubclass(entry, ProblemSource)
    return is_kind and not isabstract(entry)


SOURCES: Registry[type[ProblemSource]] = Registry(
    "source", __name__, _is_source, group="rtl_grader.sources"
)


class _Kind(BaseModel):
    """The key that every source has, checked first so that errors name `kind`."""

    kind: Annotated[str, AfterValidator(SOURCES.require)]


def _by_kind(value: Any) -> Any:
    """Validate a table of the configuration with the source class of its kind."""
    if not isinstance(value, Mapping):
        return value
    kind = _Kind.model_validate(value).kind
    return SOURCES.find(kind).model_validate(value)


Source = Annotated[SerializeAsAny[ProblemSource], BeforeValidator(_by_kind)]
"""An entry of `problems.sources`: a registered source or the user's own."""


def source_of(text: str, option: str = "--source") -> ProblemSource:
    """Parse a source given with `option` on a command line (`starter`, `cvdp=PATH`, ...); nothing of a file
    source is held out.

    Raises ConfigError for an unknown kind or an invalid text.
    """
    kind, _, rest = text.partition("=")
    try:
        return SOURCES.find(kind).from_text(kind, rest)
    except ConfigError as error:
        raise ConfigError(f"{option} {text}: {error.message}", error.hint) from None
    except ValidationError as error:
        first, *_ = error.errors()
        raise ConfigError(f"{option} {text}: {first['msg']}") from None


def override_of(sources: Iterable[str | ProblemSource]) -> str:
    """Return sources, or their texts on a command line, as a `--set` override, for a flow that takes a
    configuration and overrides."""
    tables = []
    for one in sources:
        source = source_of(one) if isinstance(one, str) else one
        entry = source.model_dump(mode="json", exclude_defaults=True)
        tables.append(_inline(entry))
    return f"problems.sources=[{', '.join(tables)}]"


def _inline(value: Any) -> str:
    """A value in TOML, in one line."""
    if not isinstance(value, Mapping):
        return json.dumps(value)
    pairs = [f"{key} = {_inline(entry)}" for key, entry in value.items()]
    return f"{{{', '.join(pairs)}}}"


def load_problems(
    sources: Sequence[ProblemSource],
    seed: int,
    split: SplitBy = "design",
    *,
    hold_out_all: bool = False,
    exclude: Sequence[ProblemSource] = (),
) -> LoadedProblems:
    """Read the sources of a configuration, and move what belongs to a held-out problem to the held-out side.

    Args:
        seed: the run's seed.
        split: what stays together, `problems.split`.
        hold_out_all: hold out every problem, for runs without training.
        exclude: evaluation sets whose near-duplicates are left out, `problems.exclude`.

    Raises:
        ProblemError: two problems have the same id, or no problem is left to train on (to evaluate, with
            `hold_out_all`).
    """
    loaded = LoadedProblems(split=split)
    for source in sources:
        if hold_out_all and isinstance(source, FileSource):
            source = source.model_copy(update={"train_problems": None})
        source.add_to(loaded, seed)
    source_by_id: dict[str, str] = {}
    for problem in loaded.every:
        if problem.id in source_by_id:
            both = f"{source_by_id[problem.id]}, {problem.source}"
            raise ProblemError(
                f"two problems have the id {problem.id!r} (sources {both})",
                "ids must be unique within a run; rename one",
            )
        source_by_id[problem.id] = problem.source
    if exclude:
        leave_out_near_duplicates(loaded, load_problems(exclude, seed, hold_out_all=True).every)
    if hold_out_all:
        loaded.train, loaded.heldout = [], loaded.every
    else:
        loaded.train, loaded.heldout, loaded.moved = separate(
            loaded.train, loaded.heldout, loaded.compared_designs
        )
    if not (loaded.heldout if hold_out_all else loaded.train):
        problem_kind = "problem" if hold_out_all else "training problem"
        lines = [f"no {problem_kind} is left"]
        lines += [f"  {line}" for line in (*loaded.broken_in_words, *loaded.left_out_in_words)]
        raise ProblemError("\n".join(lines[:11]), "check problems.sources")
    return loaded
