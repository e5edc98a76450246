"""Pairs of a specification and a golden design in the published forms: what a row holds, by its columns.

RTLCoder and OriGen (`Instruction`, `Response`), RTL-Coder_small (`instruction`, `output`), CodeV-R1 (`prompt` as
messages and `reward_model.ground_truth`, a pickle; or `question` and `ground_truth` as messages), VeriThoughts
(`question`, `ground_truth`), PyraNet and MG-Verilog (`description`, `code`), NotSoTiny (a project with one module
emptied) and RTL-BenchLS (files of a design, or one with `[MASKED]`). Any other file needs the names of its columns.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, Field

from rtl_grader.hdl.interface import HDL_SUFFIXES
from rtl_grader.hdl.text import code_of, emptied, module_names, modules
from rtl_grader.problems.cvdp import FilePath, check_text, checked, files_of
from rtl_grader.problems.faults import FieldError, NotGradableError
from rtl_grader.problems.judged import Compilation
from rtl_grader.types.files import Files
from rtl_grader.types.problem import MASKED, Difficulty

_FENCE = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n(.*?)^[ \t]*(?:```|~~~)", re.S | re.M)
_SYSTEM = re.compile(r"<s>\s*\[INST\]|<<SYS>>.*?<</SYS>>|\[/INST\]", re.S)
_HEADER_MARK = "Module header:"
_REMOVED = re.compile(
    r"//\s*>>>\s*Module Implementation Begin.*?//\s*<<<\s*Module Implementation End",
    re.S | re.I,
)
"""What NotSoTiny has in the place of a module's body."""
_VHDL = re.compile(r"^\s*(?:entity|architecture)\s+\w+\s+(?:is|of)\b", re.I | re.M)
_CALLS = re.compile(r"GLOBAL|STACK_GLOBAL|INST|OBJ|REDUCE|NEWOBJ\w*|BUILD|EXT\d|(?:BIN)?PERSID")
"""Operations of a pickle that import or call something."""
_Name = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
_Line = Annotated[str, Field(pattern=r"^\P{C}*$")]
_BASE64 = re.compile(r"[\w+/\s]+=*\s*")
_SOURCES = (".v", ".sv")


Fields = Mapping[str, Any]
"""A row, or a part of one."""


@dataclass(frozen=True)
class Columns:
    """Names or JSON paths (`a.b.0.c`) of a form's columns."""

    specification: tuple[str, ...]
    """Texts that are joined; all but the first may be absent."""
    golden: str
    top: str = ""
    id: str = ""
    context: str = ""


@dataclass(frozen=True)
class Pair:
    """What a row holds."""

    specification: str
    design: str
    """The golden answer; of several files, all of them in one text."""
    top: str | None = None
    """Name of its top module, if the row says it."""
    id: str | None = None
    context: Files = field(default_factory=dict)
    """Files beside the answer: path in the workspace -> text."""
    masked: str = ""
    """The design with `[MASKED]` in place of what an answer must write."""
    family: str | None = None
    """The design that other rows ask about, too."""
    files: Files = field(default_factory=dict)
    """The golden answer by path in the workspace, if the row names its files."""
    system: str | None = None
    """System message that the set publishes."""
    request: str = ""
    """User message that the set publishes, if the specification is not it."""


FORMS = (
    Columns(("specification",), "golden", "top", "id", "context"),
    Columns(("prompt",), "reward_model.ground_truth"),
    Columns(("question",), "ground_truth", id="problem_id"),
    Columns(("Instruction", "Input"), "Response"),
    Columns(("instruction", "input"), "output"),
    Columns(("description",), "code"),
)
"""Forms with one text and one design in a row."""
_BENCHLS = {"files", "top_module"}
_NOTSOTINY = {"prompt", "golden_module"}


def columns_of(row: Fields, own: Fields) -> Columns | None:
    """The columns of a row: the user's `own`, completed by the published form that the row has; None for
    forms of files. Raises FieldError when the columns are of no form.

    Args:
        own: field of `Columns` -> its value.
    """
    if own.keys() >= {"specification", "golden"}:
        return Columns(**own)
    if row.keys() >= _BENCHLS or row.keys() >= _NOTSOTINY:
        return None
    almost: list[str] = []
    for form in FORMS:
        columns = replace(form, **own)
        needed = (columns.golden, columns.specification[0])
        lacking = [path for path in needed if path not in row and _at(row, path) is None]
        if not lacking:
            return columns
        almost += lacking if len(lacking) == 1 else []
    present = ", ".join(map(str, list(row)[:20]))
    if len(almost) == 1:
        raise FieldError(
            almost[0],
            f"is missing ({present}); the keys `specification` and `golden` name others",
        )
    raise FieldError(
        "columns",
        f"are those of no published set ({present}); name those of the specification and of the golden "
        "answer with the keys `specification` and `golden`",
    )


def pair_of(row: Fields, columns: Columns | None) -> Pair:
    """Read a row. Raises FieldError, or NotGradableError for a valid row that cannot be judged here."""
    if columns is None:
        return _of_files(row) if row.keys() >= _BENCHLS else _of_project(row)
    parts = [_specification(_at(row, path)) for path in columns.specification]
    if not parts[0]:
        raise NotGradableError("its specification is empty")
    specification = "\n\n".join(filter(None, parts))
    golden = _at(row, columns.golden)
    files = _files(golden, columns.golden)
    design = "\n".join(files.values()) or design_in(_golden(golden, columns.golden))
    before, mark, header = specification.partition(_HEADER_MARK)
    if mark and not modules(code_of(design)):
        # MG-Verilog: the header stands in the specification, and the rest of the module in the answer.
        specification, design = before.strip(), f"{header.strip()}\n{design}"
    context = _at(row, columns.context)
    if isinstance(context, str) and context.strip():
        context = {"rtl/context.sv": context}
    return Pair(
        specification=specification,
        design=design,
        top=_name(row, columns.top),
        id=_name(row, columns.id),
        context=files_of(context, columns.context) if context else {},
        files=files,
    )


def difficulty_in(row: Fields) -> Difficulty | None:
    """The difficulty that a row states; None if it states none of ours."""
    stated = row.get("difficulty")
    return next((level for level in get_args(Difficulty) if level == stated), None)


class _Surroundings(BaseModel, coerce_numbers_to_str=True):
    """Columns of what the designs of a row are compiled with."""

    include: Annotated[tuple[FilePath, ...], BeforeValidator(lambda value: value or ())] = ()
    define: Annotated[
        dict[_Name, _Line], BeforeValidator(lambda value: _structure(value) or {})
    ] = {}


def compilation_in(row: Fields, files: Iterable[str]) -> Compilation:
    """What the designs of a row are compiled with: files of its context, and its columns `include` and `define`.

    Raises FieldError when these are no list of folders and no object of macros.
    """
    columns = checked(_Surroundings, row)
    sources = [path for path in files if path.endswith(_SOURCES)]
    return Compilation(sources, columns.include, columns.define)


def _of_files(row: Fields) -> Pair:
    """A record of RTL-BenchLS. It has no specification: the module's name and header are all that it tells."""
    top = str(_name(row, "top_module"))
    files = files_of(row["files"], "files")
    masked = files.get(str(row.get("masked_rtl_key")), "")
    if masked:
        if masked.count(MASKED) != 1:
            raise NotGradableError(f"its design does not have {MASKED} once")
        design = masked.replace(MASKED, str(row.get("ref_rtl")))
    else:
        design = _design_file(files, top)
    library = files.get("lib.v", "")
    context = {"rtl/lib.v": library} if modules(code_of(library)) else {}
    task = f"Write the Verilog module `{top}`."
    is_partial = masked.strip() not in ("", MASKED)
    if is_partial:
        task = f"Write what stands at `{MASKED}` in this design.\n\n```verilog\n{masked.rstrip()}\n```"
    return Pair(
        specification=task,
        design=design,
        top=top,
        id=_name(row, "task_id"),
        context=context,
        masked=masked if is_partial else "",
        family=_name(row, "parent_design"),
    )


def _design_file(files: Mapping[str, str], top: str) -> str:
    for path, text in files.items():
        is_design = path.endswith(_SOURCES) and not path.endswith("_combined.v")
        if is_design and top in module_names(text):
            return text
    raise FieldError("files", f"no file of it defines the module {top}")


def _of_project(row: Fields) -> Pair:
    """A task of NotSoTiny: write the module that is empty in a project of one file."""
    design = _golden(row["golden_module"], "golden_module")
    names = module_names(design)
    if len(names) != 1:
        raise FieldError("golden_module", "is not one module")
    project = str(row["prompt"])
    units = {unit.name: unit for unit in modules(code_of(project)) if unit.closed}
    texts = {name: project[unit.start : unit.end] for name, unit in units.items() if name}
    masked, parts = _REMOVED.subn(MASKED, texts.pop(names[0], ""))
    others = "\n\n".join(texts.values())
    task = f"Write the module `{names[0]}`"
    if others:
        task += " of the project whose other modules are in `rtl/project.v`"
    task += f". The top module of the project is `{row.get('top_module_name')}`."
    if parts == 1:
        task += f" Its body is what stands at `{MASKED}`.\n\n```verilog\n{masked}\n```"
    return Pair(
        specification=task,
        design=design,
        top=names[0],
        id=_name(row, "task_id"),
        context={"rtl/project.v": f"{others}\n"} if others else {},
        family=_name(row, "project_name"),
        masked=masked if parts == 1 else "",
        system=_name(row, "system_message"),
        request=project,
    )


def design_in(text: str) -> str:
    """The design of an answer: its last fenced block with a module, else the text after its thoughts.

    Test benches are left out. Raises NotGradableError when it is VHDL or holds no module.
    """
    *_, text = text.replace("\r\n", "\n").rpartition("</think>")
    fenced = _FENCE.findall(text) if "```" in text or "~~~" in text else []
    blocks = [block for block in fenced if modules(code_of(block))]
    *_, design = [text, *blocks]
    units = modules(code_of(design))
    benches = [(unit.start, unit.end) for unit in units if unit.is_bench]
    if benches and len(benches) < len(units):
        design = emptied(design, benches)
    if not units and _VHDL.search(design):
        raise NotGradableError("its golden answer is VHDL, and only Verilog is judged here")
    return design


def _at(row: Fields, path: str) -> Any:
    """The value at a JSON path, None if there is none. A text on the way is read as JSON."""
    if path in row or "." not in path:
        return row.get(path)
    value: Any = row
    for key in path.split("."):
        value = _structure(value)
        if isinstance(value, list):
            value = {str(place): entry for place, entry in enumerate(value)}
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def _structure(value: Any) -> Any:
    """The JSON object that a text holds; any other value as it is."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _name(row: Fields, path: str) -> str | None:
    value = _at(row, path)
    return None if value is None or isinstance(value, (dict, list)) else str(value)


def _specification(value: Any) -> str:
    """The text of a specification: of messages those of the user, of PyraNet's and MG-Verilog's objects the
    most detailed description."""
    value = _structure(value)
    if isinstance(value, Mapping):
        value = value.get("detailed_global_summary") or value.get("description")
    if isinstance(value, list):
        messages = [entry for entry in value if isinstance(entry, Mapping)]
        users = [str(entry.get("content")) for entry in messages if entry.get("role") == "user"]
        value = "\n\n".join(users)
    if not isinstance(value, str):
        return ""
    return (_SYSTEM.sub("", value) if "[INST]" in value else value).strip()


def _golden(value: Any, name: str) -> str:
    """The text of a golden answer: the first of a list, the content of a message, the code of a pickle."""
    if isinstance(value, list) and value:
        value = value[0]
    value = _structure(value)
    for key in ("content", "answer", "code"):
        if isinstance(value, Mapping) and key in value:
            value = value[key]
    if isinstance(value, bytes):
        return _code_in_pickle(value, name)
    if not isinstance(value, str):
        reason = "is missing" if value is None else f"is {type(value).__name__}, not text"
        raise FieldError(name, reason)
    if value.startswith("\x80"):
        return _code_in_pickle(value.encode("latin-1", "replace"), name)
    if value.startswith("gA") and _BASE64.fullmatch(value):
        try:
            return _code_in_pickle(base64.b64decode(value), name)
        except binascii.Error as error:
            raise FieldError(name, f"is not base64: {error}") from error
    if not value.strip():
        raise NotGradableError("its golden answer is empty")
    return value


def _files(value: Any, name: str) -> Files:
    """The files of a golden answer that is an object of path and text; none of any other one."""
    value = _structure(value)
    is_files = isinstance(value, dict) and all(
        str(path).endswith(HDL_SUFFIXES) for path in value
    )
    return files_of(value, name) if is_files else {}


def _code_in_pickle(data: bytes, name: str) -> str:
    """The text after the key `code` in a pickle, which is read as a list of operations: nothing of it runs.

    Raises FieldError when it is no pickle, has no such text, or would import or call something.
    """
    texts: list[str] = []
    try:
        for operation, argument, _ in pickletools.genops(data):
            if _CALLS.fullmatch(operation.name):
                raise FieldError(name, "is a pickle that would run code; it was not run")
            if isinstance(argument, str):
                check_text(argument)
                texts.append(argument)
    except (ValueError, MemoryError, OverflowError) as error:
        raise FieldError(name, f"is not a pickle: {error}") from error
    if "code" not in texts[:-1]:
        raise FieldError(name, "is a pickle without a text `code`")
    return texts[texts.index("code") + 1]
