"""What a run may not change when it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtl_core.config import RunConfig, load_config
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.problems.problem_set import LoadedProblems
from rtl_core.run.resume_check import check_unchanged, run_record


def begun_by_an_older_release(path: Path, config: RunConfig, *, without: tuple[str, ...]) -> History:
    """A history whose run was begun when some keys of `[learning]` and all of `[health]` did not exist."""
    record = run_record(config, LoadedProblems())
    stored = dict(record.config)
    stored["learning"] = {key: value for key, value in stored["learning"].items() if key not in without}
    del stored["health"]
    history = History(path)
    history.start_run(record.model_copy(update={"config": stored}))
    return history


def test_a_run_of_an_older_release_goes_on_with_the_keys_that_have_come_since_at_their_defaults(tmp_path: Path) -> None:
    config = load_config("demo", environment={})
    history = begun_by_an_older_release(tmp_path / "h.duckdb", config, without=("staleness", "truncated"))
    check_unchanged(config, LoadedProblems(), history, accept_changes=False)


def test_a_key_that_has_come_since_is_a_change_when_it_is_not_at_its_default(tmp_path: Path) -> None:
    config = load_config("demo", environment={})
    history = begun_by_an_older_release(tmp_path / "h.duckdb", config, without=("staleness", "truncated"))
    stale = load_config("demo", ["learning.staleness=1"], environment={})
    with pytest.raises(ConfigError, match=r"learning\.staleness: was 0, is 1"):
        check_unchanged(stale, LoadedProblems(), history, accept_changes=False)
    check_unchanged(stale, LoadedProblems(), history, accept_changes=True)


def test_safe_ranges_may_change_from_start_to_start(tmp_path: Path) -> None:
    config = load_config("demo", environment={})
    history = begun_by_an_older_release(tmp_path / "h.duckdb", config, without=())
    watched = load_config("demo", ['health.ranges={"optim/entropy" = {min = 0.1}}'], environment={})
    check_unchanged(watched, LoadedProblems(), history, accept_changes=False)
