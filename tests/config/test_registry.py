"""A file in a registry's package is found without a line elsewhere; one outside by its import path."""

import pytest

from rtl_core.errors import ConfigError

PACKAGE = """\
from rtl_core.registry import Registry

SHAPES = Registry("shape", __name__, callable)
"""
SQUARE = """\
from {package} import SHAPES


@SHAPES.register("square")
def square(side):
    return side * side
"""


@pytest.fixture
def shapes(tmp_path, monkeypatch, request):
    """A registry with one file in its package, under a name of its own for each test, and `outside_NAME` beside it."""
    package = f"shapes_{request.node.name.split('[')[0]}"
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(PACKAGE)
    (tmp_path / package / "square.py").write_text(SQUARE.format(package=package))
    (tmp_path / f"outside_{package}.py").write_text("HALF = 0.5\ndef double(side):\n    return 2 * side\n")
    monkeypatch.syspath_prepend(tmp_path)
    return __import__(package).SHAPES


def test_a_new_file_is_all_that_an_entry_needs(shapes):
    assert list(shapes.entries) == ["square"]
    assert shapes.find("square")(3) == 9
    assert shapes.known("square") == "square"


def test_an_entry_outside_is_found_by_its_import_path_and_stays_outside(shapes, request):
    module = f"outside_shapes_{request.node.name}"
    assert shapes.find(f"{module}:double")(3) == 6
    assert list(shapes.entries) == ["square"]
    for wrong, said in (("HALF", "is no shape"), ("nothing", "is no shape")):
        with pytest.raises(ConfigError, match=said):
            shapes.find(f"{module}:{wrong}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("circle", "there is no shape 'circle'"),
        ("no_such_module:circle", "cannot be imported"),
        (":circle", "is not of the form module:name"),
        (".circle:circle", "is not of the form module:name"),
        ("", "there is no shape ''"),
    ],
)
def test_a_name_that_is_not_there_is_told_with_the_names_that_are(shapes, name, said):
    with pytest.raises(ConfigError, match=said):
        shapes.find(name)
    with pytest.raises(ValueError, match=said):
        shapes.known(name)
    with pytest.raises(ConfigError, match="choose one of square, or module:name"):
        shapes.find("circle")


def test_a_name_is_given_once(shapes):
    assert shapes.find("square")
    with pytest.raises(ValueError, match="two shapes named 'square'"):
        shapes.register("square")(abs)
