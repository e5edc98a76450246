"""Reader for NVIDIA's CVDP data sets in both formats, one JSON object per line.

Single-turn: `id, categories, input{prompt, context}, output{response, context}, harness{files}`. Agentic: `id,
categories, system_message, prompt, context, patch, harness`, where `patch` maps files to unified-diff bodies without a
file header. The public sets withhold the solutions: they name the files, with empty texts.

A broken line becomes a BrokenLine. A LeftOut is a problem that open tools cannot grade (the comprehension
categories are judged by BLEU or by a model), or an `agentic_heavy` record, whose context is a repository
and a commit.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
)

from rtl_grader.errors import ProblemError
from rtl_grader.hdl.edits import PatchError, apply_patch
from rtl_grader.problems.faults import FieldError, NotGradableError, fault_of
from rtl_grader.problems.fetch import remedy
from rtl_grader.problems.interface import derive_interface
from rtl_grader.problems.problem_set import BrokenLine, LeftOut, ProblemSet
from rtl_grader.types.files import Files
from rtl_grader.types.problem import CATEGORIES, Difficulty, Problem

SINGLE_TURN, AGENTIC = "cvdp", "cvdp-agentic"
"""Short names of the two formats, as in `Problem.source`."""
MAX_LINE_BYTES = 64 << 20
MAX_FILE_CHARS = 8 << 20
MAX_PROMPT_CHARS = 2 << 20
MAX_FILES = 2000

_NOT_GRADABLE = {
    "cid006": "comprehension: the answer is compared by BLEU, there is nothing to simulate",
    "cid008": "comprehension: the answer is compared by BLEU, there is nothing to simulate",
    "cid009": "comprehension: the answer is judged by a model, there is nothing to simulate",
    "cid010": "comprehension: the answer is judged by a model, there is nothing to simulate",
    "cid012": "test plan to stimulus: its coverage needs a commercial simulator",
    "cid013": "test plan to checker: it needs a commercial simulator",
    "cid014": "test plan to assertions: it needs a commercial simulator",
}
_COMMERCIAL = re.compile(
    r"__VERIF_EDA_IMAGE__|__LICENSE_NETWORK__|^\s*SIM\s*=\s*(?:xcelium|vcs|questa)\b", re.M
)
_SAFE_PART = re.compile(r"[^\x00-\x1f\x7f/\\\ud800-\udfff]{1,255}")
JsonObject = dict[str, Any]
_Model = TypeVar("_Model", bound=BaseModel)


def read_cvdp(path: Path | str) -> ProblemSet:
    """Read a JSON Lines file of either format; the problems' source is `cvdp` or `cvdp-agentic`.

    Raises ProblemError only when the file itself cannot be read or is empty.
    """
    path = Path(path)
    result = ProblemSet()
    first_seen: dict[str, int] = {}
    try:
        with path.open("rb") as file:
            for number, record in json_lines(file, MAX_LINE_BYTES):
                _read_line(record, path.name, number, result, first_seen)
    except OSError as error:
        hint = "check the path and its permissions"
        if isinstance(error, FileNotFoundError):
            hint = remedy(path)
        message = f"cannot read the problem file {path}: {error.strerror}"
        raise ProblemError(message, hint) from error
    if not (result.problems or result.broken or result.left_out):
        raise ProblemError(
            f"{path} holds no problem",
            "it should hold one JSON object per line, in a CVDP format",
        )
    return result


def problem_from_record(record: JsonObject, *, source: str) -> Problem:
    """Convert a record of either format to a Problem.

    Raises FieldError (a ProblemError) naming the field, or NotGradableError with the reason.
    """
    about = checked(_Record, record)
    category, difficulty = about.categories
    context = record.get("context")
    if isinstance(context, dict) and {"repo", "commit"} <= set(context):
        raise NotGradableError(
            "its context is a repository at a commit (agentic_heavy), not files that a prompt can show"
        )
    if category in _NOT_GRADABLE:
        raise NotGradableError(f"{category} is {_NOT_GRADABLE[category]}")
    if category not in CATEGORIES:
        raise NotGradableError(
            f"unknown category {category}; known are {', '.join(CATEGORIES)}"
        )
    is_single_turn = "input" in record or "output" in record
    task = checked(_SingleTurn if is_single_turn else _Agentic, record)
    patch_field = "output.context" if is_single_turn else "patch"
    patch = {path: text or "" for path, text in task.patch.items()}
    if not task.prompt.strip():
        raise FieldError("prompt", "is empty")
    if not patch:
        raise FieldError(patch_field, "names no file, so there is nothing to answer with")
    for path in patch:
        if path.split("/")[0] not in ("rtl", "verif", "docs"):
            raise FieldError(patch_field, f"`{path}` is not in rtl, verif or docs")
    _check_harness(task.harness, {*task.context, *patch, *task.harness})
    fields: JsonObject = {
        "prompt": task.prompt,
        "context": task.context,
        "harness": task.harness,
        "targets": tuple(patch),
        "golden": _published(patch) if is_single_turn else _patched(task.context, patch),
    }
    return Problem(
        id=about.id,
        source=source,
        category=category,
        difficulty=difficulty,
        family=about.family,
        system=about.system_message or None,
        interface=derive_interface(**fields),
        **fields,
    )


def _plain_path(path: str) -> str:
    parts = path.split("/")
    if not all(map(_SAFE_PART.fullmatch, parts)) or not {".", ".."}.isdisjoint(parts):
        raise ValueError(f"`{path[:80]!a}` is not a plain path inside the workspace")
    return path


def _plain_name(name: str) -> str:
    if not name.strip() or not name.isprintable():
        raise ValueError("is empty or has characters that cannot be printed")
    return name


def _first_two(value: Any) -> Any:
    return value[:2] if isinstance(value, list) else value


FilePath = Annotated[str, AfterValidator(_plain_path)]
FileText = Annotated[str, Field(max_length=MAX_FILE_CHARS)]
FileTexts = Annotated[dict[FilePath, FileText], Field(max_length=MAX_FILES)]
_Withheld = Annotated[dict[FilePath, FileText | None], Field(max_length=MAX_FILES)]
"""Files whose texts may be unpublished."""
_Context = Annotated[FileTexts, BeforeValidator(lambda value: value or {})]
_Prompt = Annotated[str, Field(max_length=MAX_PROMPT_CHARS)]


class _Record(BaseModel):
    """What records of both formats hold."""

    id: Annotated[str, Field(max_length=200), AfterValidator(_plain_name)]
    categories: Annotated[tuple[str, Difficulty], BeforeValidator(_first_two)]
    family: str | None = None
    system_message: _Prompt | None = None


class _Agentic(BaseModel):
    prompt: _Prompt
    context: _Context = {}
    harness: FileTexts
    patch: _Withheld


class _SingleTurn(_Agentic):
    prompt: _Prompt = Field(validation_alias=AliasPath("input", "prompt"))
    context: _Context = Field({}, validation_alias=AliasPath("input", "context"))
    harness: FileTexts = Field(validation_alias=AliasPath("harness", "files"))
    patch: _Withheld = Field(validation_alias=AliasPath("output", "context"))


def _read_line(
    record: JsonObject | str,
    file: str,
    number: int,
    result: ProblemSet,
    first_seen: dict[str, int],
) -> None:
    source, identity = SINGLE_TURN, ""
    try:
        if isinstance(record, str):
            raise FieldError("line", record)
        source = SINGLE_TURN if "input" in record else AGENTIC
        if isinstance(record.get("id"), str):
            identity = record["id"]
        if identity in first_seen:
            raise FieldError("id", f"was already used in line {first_seen[identity]}")
        result.problems.append(problem_from_record(record, source=source))
    except NotGradableError as reason:
        result.left_out.append(LeftOut(identity, _printable(reason.message), source))
    except FieldError as error:
        name = _printable(identity) or None
        reason_text = _printable(error.reason)
        result.broken.append(BrokenLine(file, number, name, error.field, reason_text, source))
        return
    first_seen[identity] = number


def _printable(text: str) -> str:
    """Escape characters that must not reach a terminal, and cut the text."""
    characters = (c if c.isprintable() else ascii(c)[1:-1] for c in text[:400])
    return "".join(characters)


def checked(kind: type[_Model], value: Any) -> _Model:
    """A value of JSON as a model. Raises FieldError with the first field that is wrong."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise fault_of(error) from None


def files_of(value: object, field_name: str) -> dict[str, str]:
    """Check a mapping of safe relative paths to texts. Raises FieldError."""
    if value is None:
        raise FieldError(field_name, "is missing")
    try:
        return _FILES.validate_python(value)
    except ValidationError as error:
        raise fault_of(error, field_name) from None


_FILES = TypeAdapter(FileTexts)


def _published(files: Files) -> Files | None:
    """The golden answer, or None when the solution is withheld."""
    return files if all(text.strip() for text in files.values()) else None


def _patched(context: Files, patch: Files) -> dict[str, str] | None:
    """Return the golden answer as whole files, or None when the solution is withheld."""
    if not any(body.strip() for body in patch.values()):
        return None
    golden = {}
    for path, body in patch.items():
        try:
            text = context.get(path, "")
            golden[path] = apply_patch(text, body) if body.strip() else text
        except PatchError as error:
            raise FieldError(f"patch.{path}", str(error)) from error
    return golden


def _check_harness(harness: Files, paths: set[str]) -> None:
    """Raise FieldError or NotGradableError for a harness that cannot run in a workspace with these paths."""
    folders = {"rtl", "verif", "docs", "src", "rundir"}
    for path in paths:
        folders.update(map(str, PurePosixPath(path).parents))
    for clash in sorted(paths & folders):
        field_name = "harness" if clash in harness else "context"
        raise FieldError(field_name, f"`{clash}` is a file and a folder")
    for path, text in sorted(harness.items()):
        if _COMMERCIAL.search(text):
            raise NotGradableError(f"its harness needs a commercial tool ({path})")
    compose = harness.get("docker-compose.yml")
    if compose is None:
        raise FieldError(
            "harness", "has no docker-compose.yml, which says how to grade an answer"
        )
    compose_services(compose)


@lru_cache(maxsize=256)  # problems share a few texts, and parsing takes milliseconds
def compose_services(compose: str) -> JsonObject:
    """Return the services of a compose file; do not modify them. Raises FieldError when there is none."""
    try:
        services = (yaml.safe_load(compose) or {}).get("services")
    except (yaml.YAMLError, AttributeError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise FieldError(
            "harness.docker-compose.yml", f"is not a compose file: {reason[:200]}"
        ) from error
    if not isinstance(services, dict) or not services:
        raise FieldError("harness.docker-compose.yml", "names no service")
    return services


def check_text(value: Any) -> None:
    """Raise ValueError if a JSON value holds half of a surrogate pair, which no file can hold."""
    json.dumps(value, ensure_ascii=False).encode()


def not_json(error: Exception) -> str:
    """What is wrong with a line of JSON Lines, in words."""
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON: column {error.pos + 1}: {error.msg}"
    return f"is not JSON: {error}"


def text_lines(file: BinaryIO, most: int) -> Iterator[tuple[int, JsonObject | str]]:
    """The same as `json_lines`, for objects whose texts become files: see `check_text`."""
    for number, record in json_lines(file, most):
        try:
            check_text(record)
        except ValueError as error:
            record = not_json(error)
        yield number, record


def json_lines(file: BinaryIO, most: int) -> Iterator[tuple[int, JsonObject | str]]:
    """Yield (line number, its object or what is wrong with it) for each non-blank line, reading at most
    `most` bytes of a line.

    Safe for hostile files: neither an overlong line nor a broken one stops the reading.
    """
    number = 0
    while line := file.readline(most + 1):
        number += 1
        if number == 1 and line.startswith(b"\x1f\x8b"):
            yield number, "is compressed: unpack the file first (gunzip)"
            return
        if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            yield number, "is UTF-16: save the file as UTF-8 (iconv -f utf-16 -t utf-8)"
            return
        if number == 1 and line.strip() == b"[":
            yield number, "begins a JSON array: write one object per line (jq -c '.[]')"
            return
        too_long = len(line) > most
        if too_long:
            while line and not line.endswith(b"\n"):
                line = file.readline(1 << 20)
            yield number, f"is longer than {most >> 20} MiB"
        elif line.strip():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield number, not_json(error)
                continue
            if not isinstance(record, dict):
                record = f"is a JSON {type(record).__name__}, not an object"
            yield number, record
