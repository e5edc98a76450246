"""What every problem source must do: the project's sources, and one of a user's own outside the project."""

import json
import os
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from folders import PLAIN, WITH_BENCH, write_files
from rtl_project import project
from tiny_benches import TINY

from rtl_core.config import RunConfig, load_config, to_toml
from rtl_core.errors import ConfigError
from rtl_core.history.records import RunRecord
from rtl_core.history.store import History
from rtl_core.run.folder import config_of
from rtl_grader.problems.problem_set import LoadedProblems
from rtl_grader.problems.sources import (
    SOURCES,
    FileSource,
    GeneratedSource,
    ProblemSource,
    override_of,
    source_of,
)
from rtl_grader.validation.level import quick_level
from rtl_grader.validation.validate import validate_problem
from tests.command import invoke, run

OWN = "own_benches:Benches"
EXAMPLES = "cvdp_v1.1.0_example_nonagentic_code_generation_no_commercial_with_solutions.jsonl"

INVERTER = Path(__file__).parent / "inverter"


def starter(folder: Path, data: Path) -> dict[str, Any]:
    return {"train": 3, "heldout": 2}


def cvdp(folder: Path, data: Path) -> dict[str, Any]:
    (folder / "few.jsonl").write_text(
        f"{(data / 'cvdp' / EXAMPLES).read_text().rstrip()}\ntorn\n"
    )
    return {"path": folder / "few.jsonl"}


def benches(folder: Path, data: Path) -> dict[str, Any]:
    return {"path": TINY}


def pairs(folder: Path, data: Path) -> dict[str, Any]:
    golden = (INVERTER / "inv.sv").read_text()
    row = {"instruction": (INVERTER / "inv.md").read_text(), "output": golden}
    (folder / "few.jsonl").write_text(f"{json.dumps(row)}\ntorn\n")
    return {"path": folder / "few.jsonl"}


def rtl(folder: Path, data: Path) -> dict[str, Any]:
    return {"path": project(folder)}


def own(folder: Path, data: Path) -> dict[str, Any]:
    return {"path": INVERTER}


def folder(folder: Path, data: Path) -> dict[str, Any]:
    write_files(folder / "set/inv", WITH_BENCH)
    write_files(folder / "set/torn", PLAIN | {"problem.toml": "torn"})
    return {"path": folder / "set"}


SMALL: dict[str, Callable[[Path, Path], dict[str, Any]]] = {
    "starter": starter, "cvdp": cvdp, "verilog-eval": benches, "rtllm": benches, "pairs": pairs, "rtl": rtl, OWN: own,
    "folder": folder,
}  # fmt: skip
"""Kind -> a function that writes a few problems to a folder and returns the settings that read them."""


def test_every_registered_source_is_checked_here():
    assert set(SMALL) == {*SOURCES.entries, OWN}


@pytest.fixture(params=SMALL)
def kind(request):
    return str(request.param)


@pytest.fixture
def settings(kind, tmp_path, data):
    """Keys of a small source in a configuration."""
    folder = tmp_path / "set"
    folder.mkdir()
    return {"kind": kind, **SMALL[kind](folder, data)}


@pytest.fixture
def source(settings):
    return SOURCES.find(settings["kind"])(**settings)


def loaded_by(source: ProblemSource, seed: int = 3) -> LoadedProblems:
    loaded = LoadedProblems()
    source.add_to(loaded, seed)
    return loaded


def demo_with(settings: dict[str, Any], path: Path, *lines: str) -> Path:
    """Write the demo's configuration with this source alone, and more lines in its table."""
    shown = to_toml(load_config("demo", environment={}))
    head, _, rest = shown.partition("# The parameterised problem families")
    keys = [
        f"{key} = {value if isinstance(value, int) else repr(str(value))}"
        for key, value in settings.items()
    ]
    table = "\n".join(["[[problems.sources]]", *keys, *lines])
    path.write_text(f"{head}{table}\n\n{rest[rest.index('[tinker]') :]}")
    return path


def command(*words: str, sets: Sequence[str] = ()) -> str:
    """Output of `rtl-distill` with the folder of these tests importable, like a user's."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = run(*words, sets=sets, timeout=600, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_configuration_with_it_is_loaded_shown_and_stored(settings, source, tmp_path):
    config = load_config(demo_with(settings, tmp_path / "run.toml"), environment={})
    assert config.problems.sources == (source,)
    assert RunConfig.model_validate(config.model_dump(mode="json")) == config
    assert RunConfig.model_validate_json(config.model_dump_json()) == config
    shown = to_toml(config)
    (tmp_path / "shown.toml").write_text(shown)
    assert load_config(tmp_path / "shown.toml", environment={}) == config
    assert str(type(source).__doc__) in shown
    rows = shown.partition("[[problems.sources]]\n")[2].partition("[tinker]\n")[0].splitlines()
    for above, row in pairwise(rows):
        assert row.startswith("#") or not row or above.startswith("# "), (
            f"{row} is not explained"
        )


def test_errors_in_its_table_name_their_lines(settings, tmp_path):
    if "path" in settings:
        settings["path"] = tmp_path / "nowhere"
        with pytest.raises(ConfigError) as missing:
            load_config(path := demo_with(settings, tmp_path / "run.toml"), environment={})
        line = path.read_text().splitlines().index(f"path = '{settings['path']}'") + 1
        assert f"line {line}: `problems.sources.0.path`: there is no {settings['path']}" in str(
            missing.value
        )
    path = demo_with(settings, tmp_path / "run.toml", "no_such_key = 1")
    line = path.read_text().splitlines().index("no_such_key = 1") + 1
    with pytest.raises(
        ConfigError, match=f"line {line}: `problems.sources.0.no_such_key`: unknown key"
    ):
        load_config(path, environment={})


def test_it_can_be_named_on_a_command_line(source, settings):
    text = source.kind
    if isinstance(source, FileSource):
        text = f"{source.kind}={source.path}"
        with pytest.raises(ConfigError, match="where is it"):
            source_of(source.kind)
        with pytest.raises(ConfigError, match="there is no /nowhere"):
            source_of(f"{source.kind}=/nowhere")
        assert source_of(text) == type(source)(**{**settings, "heldout_fraction": 0.0})
        assert not loaded_by(source_of(text)).heldout
    assert load_config("demo", [override_of([text])], environment={}).problems.sources == (
        source_of(text),
    )


def test_it_returns_the_same_complete_problems_each_time(source):
    loaded = loaded_by(source)
    problems = loaded.every
    assert problems
    assert problems == loaded_by(source).every
    assert (
        len({problem.id for problem in problems})
        == len(problems)
        == len({p.fingerprint for p in problems})
    )
    for problem in problems:
        assert problem.source
        assert problem.prompt.strip()
        assert problem.targets
        assert "docker-compose.yml" in problem.harness
        assert problem.interface is not None
        assert set(problem.golden or {}) <= set(problem.targets)
        assert problem.generated == isinstance(source, GeneratedSource)
    for broken in loaded.broken:
        assert broken.file
        assert broken.reason
        assert broken.line >= 1


def test_broken_files_are_reported_and_the_others_read(source):
    expected = {
        "folder": "torn/problem.toml:1: torn: file: is not TOML",
        "cvdp": "few.jsonl:2: is not JSON: column ",
        "pairs": "few.jsonl:2: is not JSON: column ",
        OWN: "torn.md:1: torn: torn_tb.sv: No such file",
    }
    broken = [str(line) for line in loaded_by(source).broken]
    assert len(broken) == (source.kind in expected)
    assert all(line.startswith(expected[source.kind]) for line in broken)


def test_the_test_split_is_separate_or_refused(source):
    assert source.with_split("heldout") == source
    if isinstance(source, FileSource):
        with pytest.raises(ConfigError, match="no separate test split"):
            source.with_split("test")
        return
    tuned, reported = loaded_by(source), loaded_by(source.with_split("test"))
    assert (tuned.heldout_split, reported.heldout_split) == ("heldout", "test")
    assert tuned.train == reported.train
    seen = {problem.fingerprint for problem in tuned.every}
    assert not seen & {problem.fingerprint for problem in reported.heldout}


@pytest.mark.parametrize("kind", ["starter"])
def test_a_generated_set_may_be_for_training_only(source):
    loaded = loaded_by(source.model_copy(update={"heldout": 0, "heldout_split": "test"}))
    assert loaded.train == loaded_by(source).train
    assert (loaded.heldout, loaded.heldout_split) == ([], "heldout")


@pytest.mark.parametrize("kind", ["starter"])
@pytest.mark.parametrize(("own_seed", "shared"), [(None, False), (7, True)])
def test_a_generated_source_with_a_seed_gives_all_runs_the_same_training_problems(
    source, own_seed, shared
):
    first, second = (
        loaded_by(source.model_copy(update={"seed": own_seed}), seed) for seed in (0, 1)
    )
    assert ([p.id for p in first.train] == [p.id for p in second.train]) is shared
    assert first.heldout == second.heldout


def test_its_golden_answers_pass(source, grader):
    """A published harness may be weak, but not a generated one."""
    problem = next(p for p in loaded_by(source).every if p.golden)
    found = validate_problem(problem, grader, level=quick_level(2, 1))
    assert found.status in (("fit",) if problem.generated else ("fit", "weak")), found.evidence[
        "reason"
    ]


@pytest.mark.slow
def test_one_command_lists_the_problems_of_all_sources(tmp_path, data):
    texts: dict[str, ProblemSource] = {}
    for number, (kind, write) in enumerate(SMALL.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        settings = write(folder, data)
        text = f"{kind}={settings['path']}" if "path" in settings else kind
        texts[text] = SOURCES.find(kind)(kind=kind, **settings)
    listed = command(
        "problems", "list", *(word for text in texts for word in ("--source", text))
    )
    for (
        source
    ) in texts.values():  # a longer list of generated problems starts with the same ones
        assert all(problem.id in listed for problem in loaded_by(source, seed=0).every)


def test_the_kinds_are_listed_with_their_keys():
    listed = invoke("problems", "sources", COLUMNS="200").stdout
    for kind, found in SOURCES.entries.items():
        assert f"{kind}{found.form}\n    {found.__doc__}\n" in listed
        assert all(key in listed for key in found.model_fields if key != "kind")


@pytest.mark.slow
def test_the_command_validates_a_users_own_source(tmp_path, data):
    path = demo_with(
        {"kind": OWN, **own(tmp_path, data), "heldout_fraction": 0}, tmp_path / "run.toml"
    )
    places = (f"run.directory={tmp_path}", f"run.history={tmp_path / 'h.duckdb'}")
    printed = command(
        "problems", "validate", str(path), "--mutants", "1", "--seeds", "1", sets=places
    )
    assert "own-benches" in printed
    assert "1/1" in printed, "passing golden answers"
    assert "torn.md:1" in printed


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "cvpd",
            "there is no source 'cvpd'; did you mean cvdp?",
        ),
        ("no_such_module:Benches", "cannot be imported: No module named 'no_such_module'"),
        (":Benches", "is not of the form module:name"),
        (".own_benches:Benches", "is not of the form module:name"),
        ("own_benches:Bench", "`Bench` in own_benches is no source"),
        (
            "rtl_grader.problems.sources:FileSource",
            "`FileSource` in rtl_grader.problems.sources is no source",
        ),
    ],
)
def test_an_unknown_kind_is_reported_with_its_line(kind, said, tmp_path):
    path = demo_with({"kind": kind}, tmp_path / "run.toml")
    line = path.read_text().splitlines().index(f"kind = '{kind}'") + 1
    with pytest.raises(ConfigError) as error:
        load_config(path, environment={})
    assert f"line {line}: `problems.sources.0.kind`: " in str(error.value)
    assert said in str(error.value)
    with pytest.raises(ConfigError, match=f"--source {kind}"):
        source_of(kind)


def test_a_stored_run_with_a_missing_source_is_reported(tmp_path):
    config = load_config("demo", environment={}).model_dump(mode="json")
    config["problems"]["sources"] = [{"kind": "gone:Benches", "path": "x"}]
    history = History(tmp_path / "h.duckdb")
    history.start_run(RunRecord(name="old", status="cancelled", student="s", config=config))
    said = (
        r"run 'old' cannot be used here\n  `problems.sources.0.kind`: source 'gone.*PYTHONPATH"
    )
    with pytest.raises(ConfigError, match=said):
        config_of(history, "old")
