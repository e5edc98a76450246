"""The ledger of the matrix, and the figures and the report made from it."""

import pytest

from benchmarks.learning.figures import added, by_mask, has_collapsed, reached, rows
from benchmarks.learning.ledger import LEDGER, Cell, Counts, Ledger, Ran, Step, TierLine
from benchmarks.learning.report import REPORT, markdown
from benchmarks.learning.running import recipe_of
from benchmarks.learning.settings import SETTINGS

RAN = Ran("abc", "2 cores", "2026-01-01", 3.0)
PROBLEMS = [f"p{number}" for number in range(6)]


def tier_line() -> TierLine:
    untrained, teacher = Counts([0] * 5 + [1], [1] * 6), Counts([4] * 5 + [3], [4] * 6)
    return TierLine("hard", "r", PROBLEMS, 4, untrained, teacher, RAN)


def cell(
    setting: str,
    seed: int,
    passed: list[int],
    steps: list[tuple[int, int, float]] | None = None,
    evaluations: list[tuple[int, int]] | None = None,
) -> Cell:
    made = [Step(*row) for row in steps or [(48, 0, 0.5)]]
    return Cell(
        setting,
        "hard",
        seed,
        "r",
        Counts(passed, [4] * 6),
        made,
        evaluations or [],
        48,
        1000,
        RAN,
    )


def test_lines_are_read_again_and_later_lines_replace_earlier_ones(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    lines = [
        cell("hard-rl", 0, [1] * 6),
        cell("hard-rl", 1, [2] * 6, [(0, 0, 0.25), (48, 24, 0.5)]),
        cell("hard-rl", 0, [3] * 6),
    ]
    for line in (tier_line(), *lines):
        ledger.add(line)
    again = Ledger(ledger.path)
    assert (again.tiers, again.cells) == (ledger.tiers, ledger.cells)
    assert again.cells["hard-rl", 0] == lines[2]
    assert again.cells["hard-rl", 1] == lines[1]


@pytest.mark.parametrize(
    "broken", ["{", "[]", '{"kind": "cell"}', '{"kind": "other", "ran": {}}']
)
def test_a_broken_line_is_named(tmp_path, broken):
    path = tmp_path / "ledger.jsonl"
    Ledger(path).add(tier_line())
    with path.open("a") as file:
        file.write(broken + "\n")
    with pytest.raises(ValueError, match=r"ledger\.jsonl, line 2: not a line of the ledger"):
        Ledger(path)


def test_steps_to_a_rate_include_supervised_ones_and_need_a_full_window_of_student_answers():
    supervised = [(0, 0, 2.0)] * 3
    learning = [(10, 0, 1.0)] * 4 + [(10, 8, 1.0)] * 8
    line = cell("hard-warm", 0, [1] * 6, supervised + learning)
    # The window of 8 that ends with the fifth good step holds 3 × 0 and 5 × 8 of 80: exactly one half.
    assert reached(line, 0.5, tier_line()) == (3 + 9, 3 * 2.0 + 9 * 1.0)
    assert reached(line, 0.81, tier_line()) is None
    assert reached(cell("hard-warm", 0, [1] * 6, learning[4:11]), 0.1, tier_line()) is None


def test_a_run_with_intermediate_evaluations_reaches_a_rate_at_one_of_them():
    line = cell("demo", 0, [3] * 6, [(10, 10, 1.0)] * 30, [(10, 5), (20, 13)])
    # Of 24 answers to the test problems 5, 13 and at the end 18 passed.
    found = [reached(line, goal, tier_line()) for goal in (0.2, 0.5, 0.75, 0.8)]
    assert found == [(10, 10.0), (20, 20.0), (30, 30.0), None]


def test_a_run_that_ends_far_below_its_best_has_collapsed():
    good, bad = [(10, 8, 1.0)] * 8, [(10, 1, 1.0)] * 8
    assert has_collapsed(cell("hard-rl", 0, [1] * 6, good + bad))
    assert not has_collapsed(cell("hard-rl", 0, [1] * 6, bad + good))
    assert not has_collapsed(cell("hard-rl", 0, [1] * 6, [(0, 0, 1.0)] * 9))


def test_a_difference_is_paired_over_problems_and_common_seeds(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.add(tier_line())
    for seed in (0, 1, 2):
        ledger.add(cell("hard-rl", seed, [0, 1, 0, 1, 0, 0]))
    for seed in (1, 2, 3):
        ledger.add(cell("hard-warm", seed, [3, 3, 2, 4, 3, 2]))
    (entry,) = added(ledger)
    assert (entry.comparison.setting, entry.comparison.against) == ("hard-warm", "hard-rl")
    assert (entry.seeds, entry.words) == (2, "pays")
    assert entry.difference.mean == pytest.approx((17 - 2) / 24)
    assert entry.interface.mean == 0  # 4 of 4 in both
    first, second = rows(ledger, "hard")
    assert [[cell.seed for cell in row.cells] for row in (first, second)] == [
        [0, 1, 2],
        [1, 2, 3],
    ]
    assert second.below_teacher.mean == pytest.approx((23 - 17) / 24)
    text = markdown(ledger)
    assert "`hard-warm`: " + SETTINGS["hard-warm"].about in text
    assert "- `hard-distillation`" in text.split("## Not run yet")[1]


def test_the_tracked_report_matches_the_tracked_ledger():
    assert REPORT.read_text(encoding="utf-8") == markdown(Ledger(LEDGER))


def test_the_tracked_ledger_only_has_results_of_current_settings_and_models():
    ledger = Ledger(LEDGER)
    stale = [
        key for key, line in ledger.cells.items() if line.recipe != recipe_of(SETTINGS[key[0]])
    ]
    assert not stale, "run these cells again, or remove their lines from the ledger"


def test_gains_are_given_by_the_size_of_the_mask(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    here = Ran("c", "m", "2026-01-01", 1.0)
    names = [f"p{i}" for i in range(6)]
    masks = [4, 5, 6, 7, 9, 12]
    untrained = Counts([0, 0, 0, 1, 0, 0], [0] * 6)
    ledger.add(TierLine("smollm2-rtl", "r", names, 2, untrained, None, here, masks))
    for seed, passed in enumerate(([2, 2, 1, 1, 0, 0], [2, 1, 1, 2, 0, 0])):
        warm = Counts([1, 1, 0, 1, 0, 0], [2] * 6)
        ledger.add(
            Cell(
                setting="smollm2-rtl",
                tier="smollm2-rtl",
                seed=seed,
                recipe="r",
                after=Counts(passed, [2] * 6),
                steps=[Step(8, 1, 0.1)],
                evaluations=[],
                answers=8,
                train_tokens=8,
                ran=here,
                after_warm_start=warm,
            )
        )
    every, small, middle, large = by_mask(Ledger(ledger.path), "smollm2-rtl")
    assert [row.problems for row in (every, small, middle, large)] == [6, 2, 2, 2]
    assert every.untrained.mean == pytest.approx(1 / 12)
    assert small.passed.mean == pytest.approx(7 / 8)
    assert small.gain_over_warm.mean == pytest.approx(3 / 8)
    assert (middle.gain.mean, large.gain.mean) == (pytest.approx(3 / 8), 0)
    assert "| 4 to 5 |" not in markdown(ledger)
    assert "| 1 to 5 | 2 |" in markdown(ledger)
