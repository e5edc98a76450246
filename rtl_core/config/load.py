"""Load a validated `RunConfig` from a TOML file, the environment and `--set`.

The environment (`RTL_DISTILL__SECTION__KEY=value`) overrides the file, and `--set section.key=value`
overrides both. Values of these two are parsed as TOML, with plain strings as fallback.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ValidationError, WithJsonSchema

from rtl_core.config.models import RunConfig
from rtl_core.errors import ConfigError
from rtl_grader.problems.sources import SOURCES, FileSource
from rtl_grader.words import did_you_mean

ENVIRONMENT_PREFIX = "RTL_DISTILL__"
_KEYS = {
    f"{name}.{key}": section_field.annotation
    for name, field in RunConfig.model_fields.items()
    for key, section_field in field.annotation.model_fields.items()  # type: ignore[union-attr]
}
_NUMBER = r"[-+]?(?:[0-9.][\w.+-]*|inf|nan)"


def _value_pattern(annotation: Any) -> str:
    """Regular expression for what follows a key in a `section.key=value` text, as far as a schema can say it."""
    kinds = tuple(getattr(kind, "__origin__", kind) for kind in get_args(annotation))
    if get_origin(annotation) is Literal:
        values = "|".join(kinds)
    elif annotation is bool or kinds == (bool, NoneType):
        values = "[Tt]rue|[Ff]alse|[01]|yes|no|on|off"
    elif annotation in (int, float) or kinds in ((int, NoneType), (float, NoneType)):
        values = _NUMBER
    else:
        return r"(?:\.|\s*=)[\s\S]*"
    return rf"""\s*=\s*["']?(?:{values})["']?\s*"""


def _override_pattern() -> str:
    """Regular expression for overrides, an alternative for each form of values."""
    keys: dict[str, list[str]] = {}
    for key, annotation in _KEYS.items():
        keys.setdefault(_value_pattern(annotation), []).append(key)
    forms = (f"(?:{'|'.join(names)}){value}" for value, names in keys.items())
    return rf"^\s*(?:{'|'.join(forms)})$"


# A schema of this form, because Prefect prints the text that it refuses and this list; it would print a whole pattern.
Override = Annotated[
    str,
    WithJsonSchema(
        {
            "type": "string",
            "if": {"pattern": _override_pattern()},
            "else": {
                "enum": [
                    "SECTION.KEY=VALUE, with a key of `rtl-distill check --show` and a value of its kind"
                ]
            },
        }
    ),
]
"""A `section.key=value` text; Prefect refuses a trigger with an unknown key or a value of another kind."""


def shipped_configs(folder: Literal["shipped", "protocols"] = "shipped") -> dict[str, Path]:
    """Mapping of name to path of the configurations in the package: those of runs, or the evaluation protocols."""
    return {path.stem: path for path in sorted((Path(__file__).parent / folder).glob("*.toml"))}


def load_config(
    source: str | Path,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    check_files: bool = True,
) -> RunConfig:
    """Read, merge and validate the configuration of a run.

    Args:
        source: a TOML file, or the name of a shipped configuration such as `demo`.
        overrides: `section.key=value` texts, as given to `--set`.
        environment: variables to read. Default: `os.environ`.
        check_files: whether the files named in the configuration must exist on this machine.

    Raises ConfigError with file, line and key of every mistake.
    """
    path, text, data = read_toml(source)
    origins = _apply(data, overrides, os.environ if environment is None else environment)
    try:
        config = RunConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(
            _explain(error, data, path, text, origins),
            "`rtl-distill check --show` lists every key with its meaning",
        ) from None
    if check_files:
        _check_files(config, path, text)
    return config


def read_toml(source: str | Path) -> tuple[Path, str, dict[str, Any]]:
    """Path, text and content of a configuration's TOML file. Raises ConfigError if it cannot be read."""
    shipped = shipped_configs()
    path = shipped.get(_utf8(str(source), "the configuration's name"), Path(source))
    try:
        text = path.read_text(encoding="utf-8-sig")  # Windows editors write a byte order mark
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration {str(source)!r}",
            did_you_mean(
                str(source),
                [*shipped, *map(str, path.parent.glob("*.toml"))],
                f"give a TOML file, or one of: {', '.join(shipped)}",
            ),
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"cannot read the configuration {path}: {reason}", "give a readable TOML file"
        ) from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path}: not valid TOML: {error}",
            "correct that line; see `rtl-distill check demo --show`",
        ) from None
    return path, text, data


def _apply(
    data: dict[str, Any], overrides: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Apply the environment and `--set` to `data`. Returns a mapping of key to the origin of its value."""
    changes: list[tuple[str, str, str]] = []  # key, value, origin
    for name, value in sorted(environment.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            changes.append((key, value, f"environment variable {name}"))
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(
                f"--set {override}: expected section.key=value", "for example --set run.seed=1"
            )
        changes.append((key.strip(), value, f"--set {override}"))
    for key, value, origin in changes:
        _assign(data, key, _parse_value(_utf8(value, origin)), origin)
    return {key: origin for key, _, origin in changes}


def _utf8(text: str, origin: str) -> str:
    """Return `text`. Raises ConfigError if it is not UTF-8, such as the name of a file from a system with
    another encoding: neither the history nor a TOML file can hold it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"{origin}: {text!a} is not UTF-8 text", "rename the file or folder"
        ) from None
    return text


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _assign(data: dict[str, Any], dotted: str, value: Any, origin: str) -> None:
    *sections, last = dotted.split(".")
    node: Any = data
    for depth, part in enumerate(sections, start=1):
        if isinstance(node, list):
            try:
                node = node[int(part)]
            except (ValueError, IndexError):
                raise ConfigError(
                    f"{origin}: entries are 0 to {len(node) - 1}; to add one, set the whole list"
                ) from None
        else:
            if part not in node:
                node[part] = _default_table(sections[:depth])
            node = node[part]
        if not isinstance(node, (dict, list)):
            raise ConfigError(f"{origin}: `{part}` is a value, not a section")
    if isinstance(node, list):
        raise ConfigError(
            f"{origin}: name an entry of the list and its key, for example problems.sources.0.train"
        )
    node[last] = value


def _default_table(sections: Sequence[str]) -> dict[str, Any]:
    """Return the default of a table that is not in the file, so that setting one entry keeps the others."""
    model: Any = RunConfig
    default: Any = None
    for name in sections:
        field = getattr(model, "model_fields", {}).get(name)
        if field is None:
            return {}
        model, default = field.annotation, field.get_default(call_default_factory=True)
    return dict(default) if isinstance(default, dict) else {}


def _line_of(text: str, location: Sequence[str | int]) -> int | None:
    """Return the line (from 1) of the key at `location` in a TOML text, else that of its table, else None."""
    names = [part for part in location if isinstance(part, str)]
    indices = [part for part in location if isinstance(part, int)]
    table: list[str] = []
    entry = -1
    best_length, best_number = 0, None
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line)
        if header:
            previous, table = table, header[2].split(".")
            entry = entry + 1 if header[1] == "[[" and previous == table else 0
            path = table
        else:
            key = re.match(r"\s*([A-Za-z0-9_.\"-]+)\s*=", line)
            if not key:
                continue
            path = table + key[1].replace('"', "").split(".")
        in_table = len(table) > 1 and table == names[: len(table)]
        if in_table and indices and entry != indices[0]:
            continue  # another entry of the list
        if path == names[: len(path)] and len(path) > best_length:
            best_length, best_number = len(path), number
    return best_number


def _place(path: Path, text: str, location: Sequence[str | int]) -> str:
    number = _line_of(text, location)
    return f"{path}, line {number}" if number else str(path)


def _keys_beside(data: Mapping[str, Any], location: Sequence[str | int]) -> list[str]:
    """Keys that an unknown key at `location` may be meant for."""
    match location:
        case ["problems", ("sources" | "exclude") as name, int(index), *_]:
            source = SOURCES.find(data["problems"][name][index]["kind"])
            return [f"problems.{name}.{index}.{key}" for key in source.model_fields]
    return [*_KEYS, *RunConfig.model_fields]


def _explain(
    error: ValidationError,
    data: Mapping[str, Any],
    path: Path,
    text: str,
    origins: Mapping[str, str],
) -> str:
    lines = []
    errors = error.errors()
    for item in errors:
        location = list(item["loc"])
        # pydantic also reports a list with invalid entries as too short.
        below = [other for other in errors if list(other["loc"])[: len(location)] == location]
        if item["type"] == "too_short" and len(below) > 1:
            continue
        message = item["msg"].removeprefix("Value error, ")
        if not location and (named := re.match(r"([a-z_]+\.[a-z_]+): ", message)):
            location, message = list(named[1].split(".")), message[named.end() :]
        key = ".".join(map(str, location)) or "(the whole file)"
        if item["type"] == "extra_forbidden":
            message = did_you_mean(key, _keys_beside(data, location), "")
            message = "; ".join(filter(None, ("unknown key", message)))
        elif item["type"] == "missing":
            message = "this key is required"
        elif location == ["run", "name"] and item["type"] == "string_pattern_mismatch":
            message = "1 to 64 letters, digits, `_`, `.` or `-`, the first a letter or digit"
        elif isinstance(item["input"], str) and item["input"].startswith(("[", "{")):
            message = "not valid TOML: close each bracket, and put each text in quotes"
        places = [_place(path, text, location)]
        for name, origin in origins.items():
            if f"{key}.".startswith(f"{name}."):
                places[0] = origin
            elif name.startswith(f"{key}."):
                places.append(origin)
        place = ", ".join(places)
        lines.append(f"{place}: `{key}`: {message}")
    return "the configuration cannot be used\n" + "\n".join(f"  {line}" for line in lines)


def _check_files(config: RunConfig, path: Path, text: str) -> None:
    """Raise ConfigError if a file named in the configuration does not exist."""
    missing: dict[str, str] = {}

    def note(file: Path, remedy: str, *location: str | int) -> None:
        place = _place(path, text, location)
        missing[f"{place}: `{'.'.join(map(str, location))}`: there is no {file}"] = remedy

    lists = {"sources": config.problems.sources, "exclude": config.problems.exclude}
    for name, sources in lists.items():
        for index, source in enumerate(sources):
            for key, value in source:
                if not isinstance(value, Path):
                    continue
                remedy, is_there = FileSource.how_to_get(value), value.exists()
                if isinstance(source, FileSource) and key == "path":
                    remedy, is_there = source.how_to_get(value), source.is_there(value)
                if not is_there:
                    note(value, remedy, "problems", name, index, key)
    if config.cost.prices is not None and not config.cost.prices.is_file():
        note(config.cost.prices, "copy rtl_core/cost/prices.toml there", "cost", "prices")
    for name, folder in config.tinker.local_models.items():
        # For a model of another service the folder needs only the tokenizer.
        embedded = config.tinker.is_embedded(name)
        complete = (folder / "config.json").is_file() if embedded else folder.is_dir()
        if not complete:
            remedy = "put the model's folder there or change the path"
            note(folder, remedy, "tinker", "local_models", name)
    if missing:
        title = ["files of the configuration are missing"] if len(missing) > 1 else []
        raise ConfigError(
            "\n  ".join([*title, *missing]), "; ".join(dict.fromkeys(missing.values()))
        )
