"""Times of overlapping stages."""

from rtl_core.observe.stage_clock import StageClock


def test_overlapping_tasks_of_a_stage_count_once_and_each_stage_counts_separately():
    now = 0.0
    clock = StageClock(lambda: now)
    first, second, grade = (
        clock.measure("sample"),
        clock.measure("sample"),
        clock.measure("grade"),
    )
    now = 1.0
    first.__enter__()
    now = 2.0
    second.__enter__()
    now = 3.0
    first.__exit__(None, None, None)
    grade.__enter__()
    now = 5.0
    second.__exit__(None, None, None)
    now = 6.0
    grade.__exit__(None, None, None)
    now = 8.0
    clock.add("store", 0.5)
    assert clock.seconds() == {
        "sample": 4.0,
        "grade": 3.0,
        "work": 5.0,
        "store": 0.5,
        "total": 8.0,
    }
    assert [clock.seconds(before)["total"] for before in (-1.0, 6.0)] == [8.0, 2.0]
