"""From a TOML file, the environment and `--set` to a checked `RunConfig`.

Later wins: file, then environment (`RTL_DISTILL__SECTION__KEY=value`), then `--set section.key=value`. Values of the last
two are read as TOML and, where they are none, as plain strings.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rtl_core.config.models import RunConfig
from rtl_core.errors import ConfigError
from rtl_core.problems.sources import FileSource

ENVIRONMENT_PREFIX = "RTL_DISTILL__"


def shipped_configs() -> dict[str, Path]:
    """Name -> path of the configurations that come with the package."""
    folder = Path(str(resources.files("rtl_core.config") / "shipped"))
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_config(
    source: str | Path,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    check_files: bool = True,
) -> RunConfig:
    """Read, merge and check the configuration of a run.

    Args:
        source: a TOML file, or the name of a shipped configuration such as `demo`.
        overrides: `section.key=value` texts, as given to `--set`.
        environment: variables to read, `os.environ` by default.
        check_files: whether the files that it names must be on this machine.

    Raises:
        ConfigError: the message names the file, the line and the key of everything that is wrong.
    """
    shipped = shipped_configs()
    path = shipped.get(str(source), Path(source))
    try:
        text = path.read_text(encoding="utf-8-sig")  # editors of Windows begin with a mark
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration {str(source)!r}", f"give a TOML file, or one of: {', '.join(shipped)}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(
            f"cannot read the configuration {path}: {reason}", "give a TOML file that you can read"
        ) from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"{path}: not valid TOML: {error}", "mend that line; see `rtl-distill config --show demo`"
        ) from None

    origins = _apply(data, overrides, os.environ if environment is None else environment)
    try:
        config = RunConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(
            _explain(error, path, text, origins), "`rtl-distill config --show` lists every key with its meaning"
        ) from None
    if check_files:
        _check_files(config, path, text)
    return config


def _apply(data: dict[str, Any], overrides: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Set in `data` what the environment and `--set` say; returns who set each key."""
    origins: dict[str, str] = {}
    for name, value in sorted(environment.items()):
        if name.startswith(ENVIRONMENT_PREFIX):
            key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
            _assign(data, key, _parse_value(value), origin=f"environment variable {name}")
            origins[key] = f"environment variable {name}"
    for override in overrides:
        key, equals, value = override.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {override}: expected section.key=value", "for example --set run.seed=1")
        _assign(data, key.strip(), _parse_value(value), origin=f"--set {override}")
        origins[key.strip()] = f"--set {override}"
    return origins


def _parse_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _assign(data: dict[str, Any], dotted: str, value: Any, *, origin: str) -> None:
    *sections, last = dotted.split(".")
    node: Any = data
    for depth, part in enumerate(sections, start=1):
        if isinstance(node, list):
            try:
                node = node[int(part)]
            except (ValueError, IndexError):
                raise ConfigError(f"{origin}: entries are 0 to {len(node) - 1}; to add one, set them all") from None
        else:
            if part not in node:
                node[part] = _default_table(sections[:depth])
            node = node[part]
        if not isinstance(node, (dict, list)):
            raise ConfigError(f"{origin}: `{part}` is a value, not a section")
    if isinstance(node, list):
        raise ConfigError(f"{origin}: name an entry of the list and its key, for example problems.sources.0.train")
    node[last] = value


def _default_table(sections: Sequence[str]) -> dict[str, Any]:
    """What a table holds of which the file says nothing: one of its entries can be set, and the others stay."""
    model: Any = RunConfig
    default: Any = None
    for name in sections:
        field = getattr(model, "model_fields", {}).get(name)
        if field is None:
            return {}
        model, default = field.annotation, field.get_default(call_default_factory=True)
    return dict(default) if isinstance(default, dict) else {}


def line_of(text: str, location: Sequence[str | int]) -> int | None:
    """The 1-based line of a TOML text on which the key at `location` stands, or its table's, or None."""
    names = [part for part in location if isinstance(part, str)]
    indices = [part for part in location if isinstance(part, int)]
    table: list[str] = []
    entry = -1
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        header = re.match(r"\s*(\[\[?)\s*([^\]]+?)\s*\]", line)
        if header:
            previous, table = table, header.group(2).split(".")
            entry = entry + 1 if header.group(1) == "[[" and previous == table else 0
            path = table
        else:
            key = re.match(r"\s*([A-Za-z0-9_.\"-]+)\s*=", line)
            if not key:
                continue
            path = table + key.group(1).replace('"', "").split(".")
        if indices and table == names[: len(table)] and len(table) > 1 and entry != indices[0]:
            continue
        if path == names[: len(path)] and (best is None or len(path) > best[0]):
            best = (len(path), number)
    return best[1] if best else None


def _explain(error: ValidationError, path: Path, text: str, origins: Mapping[str, str]) -> str:
    lines = []
    errors = error.errors()
    for item in errors:
        # A list whose entries were refused also counts as too short: that is an echo, not a second mistake.
        if item["type"] == "too_short" and any(
            other["loc"][: len(item["loc"])] == item["loc"] for other in errors if other is not item
        ):
            continue
        location = list(item["loc"])
        message = item["msg"].removeprefix("Value error, ")
        if not location and (named := re.match(r"([a-z_]+\.[a-z_]+): ", message)):
            location, message = list(named.group(1).split(".")), message[named.end() :]
        key = ".".join(map(str, location)) or "(the whole file)"
        if item["type"] == "extra_forbidden":
            message = "unknown key"
        elif item["type"] == "missing":
            message = "this key is required"
        elif location == ["run", "name"] and item["type"] == "string_pattern_mismatch":
            message = "1 to 64 letters, digits, `_`, `.` or `-`, the first a letter or digit"
        elif isinstance(item["input"], str) and item["input"].startswith(("[", "{")):
            message = "not valid TOML: close each bracket, and put each text in quotes"
        above = [origin for name, origin in origins.items() if f"{key}.".startswith(f"{name}.")]
        below = [origin for name, origin in origins.items() if name.startswith(f"{key}.")]
        number = line_of(text, location)
        place = ", ".join([above[-1] if above else f"{path}, line {number}" if number else str(path), *below])
        lines.append(f"{place}: `{key}`: {message}")
    return "the configuration cannot be used\n" + "\n".join(f"  {line}" for line in lines)


def _check_files(config: RunConfig, path: Path, text: str) -> None:
    """Every file that the configuration names must exist before anything starts."""
    missing: list[tuple[tuple[str | int, ...], Path, str]] = []
    for index, source in enumerate(config.problems.sources):
        for key, value in source:
            if isinstance(value, Path) and not value.exists():
                remedy = "put it there or change the path"
                if isinstance(source, FileSource) and key == "path":
                    remedy = source.how_to_get(value)
                missing.append((("problems", "sources", index, key), value, remedy))
    if config.cost.prices is not None and not config.cost.prices.is_file():
        missing.append((("cost", "prices"), config.cost.prices, "copy rtl_core/cost/prices.toml there"))
    for name, folder in config.tinker.local_models.items():
        # Another service has the model; here is its tokenizer, in whichever files.
        if not ((folder / "config.json").is_file() if config.tinker.is_embedded(name) else folder.is_dir()):
            missing.append(
                (("tinker", "local_models", name), folder, "put the model's folder there or change the path")
            )
    rows = []
    for location, file, _ in missing:
        number = line_of(text, location)
        place = f"{path}, line {number}" if number else str(path)
        rows.append(f"{place}: `{'.'.join(map(str, location))}`: there is no {file}")
    if rows:
        found = rows[0] if len(rows) == 1 else "\n  ".join(["files of the configuration are missing", *rows])
        raise ConfigError(found, "; ".join(dict.fromkeys(remedy for _, _, remedy in missing)))
