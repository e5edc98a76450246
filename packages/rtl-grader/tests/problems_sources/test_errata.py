"""Known faults of published sets belong to exact texts, and edited sets are noticed."""

import shutil

import pytest

from rtl_grader.problems.errata import _editions, _errata, edited, errata_of, version_of
from rtl_grader.problems.sources import source_of
from rtl_grader.validation import table
from rtl_grader.validation.record import ValidationRecord

SETS = {
    "verilog-eval": "verilog-eval",
    "RTLLM": "rtllm",
    "cvdp": "cvdp",
}
Y4 = "verilog_eval_Prob099_m2014_q6c"


@pytest.fixture(scope="module")
def published(data):
    """Problem id -> problem of the published sets at hand."""
    read = [source_of(f"{kind}={data / folder}").read() for folder, kind in SETS.items()]
    return {problem.id: problem for contents in read for problem in contents.problems}


def test_every_fault_is_of_a_known_version_of_its_problem():
    for problem, faults in _errata().items():
        versions = {version for _, version in _editions()[problem]}
        for fault in faults:
            assert fault.version in versions
            assert fault.link.startswith("https://") or fault.said_by.startswith("rtl-distill")


def test_the_published_sets_are_recognised_and_their_faults_named(published):
    assert edited(published.values()) == []
    assert all(map(version_of, published.values()))
    (fault,) = errata_of(published[Y4])
    assert str(fault) == (
        "the test bench connects Y2 and Y4, but specification and reference have Y1 and Y3, so no right answer "
        "compiles (an issue, confirmed by a maintainer, https://github.com/NVlabs/verilog-eval/issues/13)"
    )
    assert errata_of(published["verilog_eval_Prob001_zero"]) == ()
    faults = [fault.fault for fault in errata_of(published["rtllm_sequence_detector"])]
    assert any("rst_n, active low" in fault for fault in faults)


@pytest.mark.parametrize("part", ["prompt.txt", "ref.sv", "test.sv"])
def test_an_edited_problem_has_no_known_faults_and_is_reported(part, data, tmp_path):
    for name in ("Prob099_m2014_q6c", "Prob001_zero"):
        for file in (data / "verilog-eval/dataset_spec-to-rtl").glob(f"{name}_*"):
            shutil.copy(file, tmp_path)
    path = tmp_path / f"Prob099_m2014_q6c_{part}"
    path.write_text(path.read_text().replace("w", "w ", 1))
    contents = source_of(f"verilog-eval={tmp_path}").read()
    assert [problem.id for problem in contents.problems] == ["verilog_eval_Prob001_zero", Y4]
    assert errata_of(contents.problems[1]) == ()
    (line,) = edited(contents.problems)
    assert line == (
        f"1 problem with the ids of VerilogEval v2.0 (commit c498220) and other texts ({Y4}): the set was edited "
        "or is of another version, and known faults do not apply"
    )


def test_line_ends_of_windows_are_the_same_texts(data, tmp_path):
    for file in (data / "verilog-eval/dataset_spec-to-rtl").glob("Prob099_m2014_q6c_*"):
        (tmp_path / file.name).write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    (problem,) = source_of(f"verilog-eval={tmp_path}").read().problems
    assert errata_of(problem)


def test_validation_names_the_known_fault_beside_its_own_finding(published):
    fit = "rtllm_adder_8bit"
    problems = [
        published[Y4],
        published[fit],
        published["verilog_eval_Prob001_zero"].model_copy(update={"edition": "0"}),
    ]
    records = {
        problem.id: ValidationRecord(
            fingerprint=problem.fingerprint,
            tools_key="tools",
            problem_id=problem.id,
            status="broken" if problem.id == Y4 else "fit",
            evidence={"source": problem.source, "reason": "the golden answer fails"},
        )
        for problem in problems
    }
    _, (unfit,) = table.by_source(records, problems=problems)
    assert unfit.reason.startswith("the golden answer fails; known fault: the test bench")
    fault, other = table.published(problems, records)
    assert fault.startswith(f"fit: {fit} (rtllm); known fault: the test bench also passes")
    assert other.startswith("1 problem with the ids of VerilogEval v2.0")
