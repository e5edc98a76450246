"""Rooms import downwards only, and the check says where one does not."""

from pathlib import Path

from scripts import limits, rooms


def test_every_package_is_a_room():
    root = Path(rooms.__file__).parents[1]
    inner = {f"rtl_core.{path.parent.name}" for path in (root / "rtl_core").glob("*/__init__.py")}
    assert inner == {room for room in rooms.ROOMS if room.startswith("rtl_core.")}


def test_an_import_upwards_is_named_with_its_place(tmp_path, capsys):
    types = tmp_path / "rtl_core" / "types"
    types.mkdir(parents=True)
    (types / "verdict.py").write_text("def late():\n    from rtl_core.grading.grader import Grader\n")
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "grade.py").write_text("import rtl_core.grading.grader\n")
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "train.py").write_text("from rtl_distill.cli import grade\n")
    assert rooms.main(tmp_path) == 1
    said = capsys.readouterr()
    assert "rtl_core/types/verdict.py:2: rtl_core.types may not import rtl_core.grading.grader.Grader" in said.err
    assert "flows/train.py:1: flows may not import rtl_distill.cli.grade" in said.err
    assert "cli/grade.py" not in said.err


def test_only_the_backend_and_what_speaks_tinkers_protocol_know_the_sdk(tmp_path, capsys):
    for room in ("rollouts", "backend"):
        (tmp_path / "rtl_core" / room).mkdir(parents=True)
        (tmp_path / "rtl_core" / room / "saving.py").write_text("def late():\n    from tinker.types import Datum\n")
    assert rooms.main(tmp_path) == 1
    said = capsys.readouterr().err
    assert said == "rtl_core/rollouts/saving.py:2: rtl_core.rollouts may not import tinker.types.Datum\n"


def test_every_room_has_a_budget_of_lines():
    assert rooms.budgets(Path(rooms.__file__).parents[1]).keys() == {*rooms.ROOMS, *rooms.BESIDE}


def test_a_room_above_its_budget_is_named(tmp_path, capsys):
    for folder in ("flows", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "flows" / "train.py").write_text("a = 1\n" * 1_201)
    (tmp_path / "docs" / "architecture.md").write_text("| room | lines |\n|---|---|\n| `flows` | 1,200 |\n")
    assert rooms.main(tmp_path) == 1
    assert capsys.readouterr().err == "flows has 1201 lines, docs/architecture.md gives it 1200\n"


def test_what_is_above_a_limit_is_named_with_its_place(tmp_path, capsys):
    many = ", ".join(f"a{i}" for i in range(9))
    text = "def long():\n" + "    a = 1\n" * 60 + f"def wide({many}): ...\nclass Big:\n" + "    a: int\n" * 13
    for folder in ("flows", "cli", "types"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text(text)
    assert limits.main(tmp_path) == 1
    said = capsys.readouterr().err.splitlines()
    assert "flows/one.py:1: long: 61 lines, at most 60" in said
    assert "flows/one.py:62: wide: 9 parameters, at most 8" in said
    assert "flows/one.py:63: Big: 13 fields, at most 12" in said
    assert [line for line in said if line.startswith("cli") and "parameters" in line] == []
