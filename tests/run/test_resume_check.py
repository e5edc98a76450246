"""What a run may not change when it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from rtl_core.config import RunConfig, load_config
from rtl_core.errors import ConfigError
from rtl_core.history.store import History
from rtl_core.problems.problem_set import LoadedProblems
from rtl_core.run.resume_check import check_unchanged, run_record, with_bounds_as_begun


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


@pytest.mark.parametrize("loss", ["cispo", "ppo", "importance_sampling"])
def test_a_run_that_was_begun_with_the_bounds_of_an_older_release_goes_on_with_them(tmp_path: Path, loss: str) -> None:
    """Then 0.8 and 1.2 were the defaults with every loss, and were stored."""
    config = load_config("demo", [f"learning.loss={loss}"], environment={})
    older = config.model_copy(
        update={"learning": config.learning.model_copy(update={"clip_low": 0.8, "clip_high": 1.2})}
    )
    history = begun_by_an_older_release(tmp_path / "h.duckdb", older, without=())
    goes_on = with_bounds_as_begun(config, history)
    check_unchanged(goes_on, LoadedProblems(), history, accept_changes=False)
    assert goes_on == older
    assert goes_on.learning.loss_settings == (
        {} if loss == "importance_sampling" else {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    )
    # What a file says counts, as a change.
    said = with_bounds_as_begun(load_config("demo", [f"learning.loss={loss}", "learning.clip_low=0"]), history)
    assert (said.learning.clip_low, said.learning.clip_high) == (0.0, 1.2)
    with pytest.raises(ConfigError, match=r"learning\.clip_low: was 0\.8, is 0\.0"):
        check_unchanged(said, LoadedProblems(), history, accept_changes=False)


def test_a_new_run_has_the_bounds_of_its_loss_and_keeps_them(tmp_path: Path) -> None:
    config = load_config("demo", ["learning.loss=cispo"], environment={})
    history = begun_by_an_older_release(tmp_path / "h.duckdb", config, without=())
    assert with_bounds_as_begun(config, history) == config
    assert config.learning.loss_settings == {"clip_low_threshold": 0.0, "clip_high_threshold": 4.0}
