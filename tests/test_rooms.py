"""The scripts that check imports between rooms, and sizes of files, functions and classes."""

from pathlib import Path

import pytest

from scripts import limits, rooms


def test_every_package_is_a_room():
    root = Path(rooms.__file__).parents[1]
    places = (
        root / "rtl_core",
        *(root / "packages").glob("*/[a-z]*_*"),
        root / "packages/localtinker/localtinker",
    )
    packages = {
        f"{place.name}.{path.parent.name}"
        for place in places
        for path in place.glob("*/__init__.py")
    }
    rows = {room for room in rooms.ROOMS if "." in room}
    assert packages == rows - {"rtl_grader.settings", "localtinker.cli"}  # files


SDK = "def late():\n    from tinker.types import Datum\n"
FORBIDDEN = {
    "upwards": (
        {
            "packages/rtl-grader/rtl_grader/types/verdict.py": "def late():\n    from rtl_grader.grading.grader import Grader\n",
            "cli/grade.py": "import rtl_core.rollouts.batch\n",
            "flows/train.py": "from rtl_distill.cli import grade\n",
        },
        "flows/train.py:1: flows may not import rtl_distill.cli.grade\n"
        "packages/rtl-grader/rtl_grader/types/verdict.py:2: rtl_grader.types may not import rtl_grader.grading.grader.Grader\n",
    ),
    "what a package does not offer": (
        {
            "packages/rtl-grader/rtl_grader/__init__.py": 'OPEN = ("types.verdict",)\n',
            "rtl_core/run/one.py": "from rtl_grader.types.verdict import Verdict\nimport rtl_grader.grading.screen\n",
            "packages/localtinker/localtinker/app.py": "from rtl_grader.types.verdict import Verdict\n",
            "packages/rtl-grader/rtl_grader/types/answer.py": "import rtl_core\n",
        },
        "packages/localtinker/localtinker/app.py:1: localtinker may not import rtl_grader.types.verdict.Verdict\n"
        "packages/rtl-grader/rtl_grader/types/answer.py:1: rtl_grader.types may not import rtl_core\n"
        "rtl_core/run/one.py:2: rtl_core.run may not import rtl_grader.grading.screen\n",
    ),
    "SDK and Prefect in other rooms": (
        {
            "rtl_core/rollouts/saving.py": SDK,
            "rtl_core/backend/saving.py": SDK,
            "cli/grade.py": "import prefect\n",
        },
        "cli/grade.py:1: cli may not import prefect\n"
        "rtl_core/rollouts/saving.py:2: rtl_core.rollouts may not import tinker.types.Datum\n",
    ),
    "too much content": (
        {
            "flows/train.py": '"""Docstrings do not count."""\n' + "a = 1\n" * 601,
            "scripts/budget.toml": "[nodes]\nflows = 1_200\n",
        },
        "flows holds 1202 expression nodes, scripts/budget.toml gives it 1200\n",
    ),
}


@pytest.mark.parametrize(("files", "errors"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_violations_of_rooms_are_reported(tmp_path, capsys, files, errors):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert rooms.main(tmp_path) == 1
    assert capsys.readouterr().err == errors


def test_every_room_has_a_budget():
    assert rooms.budgets(Path(rooms.__file__).parents[1]).keys() == {*rooms.ROOMS}


def test_violations_of_limits_are_reported(tmp_path, capsys):
    many = ", ".join(f"a{i}" for i in range(9))
    text = (
        "def long():\n"
        + "    a = 1\n" * 61
        + f"def wide({many}): ...\nclass Big:\n"
        + "    a: int\n" * 13
    )
    for folder in ("flows", "cli", "types"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "one.py").write_text(text)
    assert limits.main(tmp_path) == 1
    errors = capsys.readouterr().err.splitlines()
    assert "flows/one.py:1: long: 61 lines, at most 60" in errors
    assert "flows/one.py:63: wide: 9 parameters, at most 8" in errors
    assert "flows/one.py:64: Big: 13 fields, at most 12" in errors
    assert [line for line in errors if line.startswith("cli") and "parameters" in line] == []


def test_density_is_limited_by_package(tmp_path, capsys):
    folder = tmp_path / "packages/localtinker/localtinker"
    folder.mkdir(parents=True)
    dense = "a = " + " + ".join(["b"] * 12) + "\n"
    (folder / "app.py").write_text(
        '"""Docstrings do not count."""\nimport os\n' + dense + "c = 1\n" * 3
    )
    assert limits.main(tmp_path) == 1
    assert capsys.readouterr().err.splitlines() == [
        "localtinker: 6.00 expression nodes a code line, at most 4.5",
        "localtinker: 20.00 % dense lines, at most 0.5",
    ]
