"""Times of overlapping stages."""

from rtl_core.observe.stage_clock import StageClock


def test_overlapping_work_of_one_stage_counts_once_and_stages_count_apart():
    time = [0.0]
    clock = StageClock(lambda: time[0])

    def at(seconds):
        time[0] = seconds

    first, second, grade = clock.measure("sample"), clock.measure("sample"), clock.measure("grade")
    at(1.0)
    first.__enter__()
    at(2.0)
    second.__enter__()
    at(3.0)
    first.__exit__(None, None, None)
    grade.__enter__()
    at(5.0)
    second.__exit__(None, None, None)
    at(6.0)
    grade.__exit__(None, None, None)
    at(8.0)
    clock.add("store", 0.5)
    assert clock.seconds() == {"sample": 4.0, "grade": 3.0, "work": 5.0, "store": 0.5, "total": 8.0}
    assert [clock.seconds(before)["total"] for before in (-1.0, 6.0)] == [8.0, 2.0]
