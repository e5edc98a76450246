"""Containers begin as a snapshot of a warm process, which changes no verdict, and may do less than Docker would let them."""

import hashlib
import logging
import platform

import pytest

from rtl_core.grading.executors import make_executor
from rtl_core.grading.executors.base import Job, Step
from rtl_core.grading.grader import Grader
from rtl_core.types.answer import Answer

pytestmark = pytest.mark.docker
LFSR = "cvdp_copilot_lfsr_0001"


@pytest.fixture(scope="module")
def docker_executor():
    with make_executor("docker") as started:
        run(started, "true")
        yield started


def run(executor, *argv, **further):
    return executor.run(Job({}, {}, (Step("direct", argv),), **further)).steps[0]


def snapshots(executor):
    return list(executor._folder.glob("snapshot-*/memory"))


def essence(verdict):
    stages = [(result.stage, result.status, result.reasons) for result in verdict.stages]
    return verdict.outcome, stages, verdict.tests_passed, verdict.tests_total, verdict.reasons


def test_a_container_that_starts_afresh_says_the_same(docker_executor, examples, monkeypatch, caplog):
    lfsr = examples[LFSR]
    code = lfsr.golden["rtl/lfsr_8bit.sv"]
    answers = [code, code.replace("lfsr_out[6] ^", "lfsr_out[5] ^"), code.replace(";", "", 1)]
    assert snapshots(docker_executor)
    monkeypatch.setattr(platform, "machine", lambda: "another")
    verdicts = []
    with make_executor("docker") as afresh, caplog.at_level(logging.WARNING, "rtl_distill"):
        for executor in (docker_executor, afresh):
            grader = Grader(executor)
            verdicts.append([essence(grader.grade(lfsr, Answer(files={"rtl/lfsr_8bit.sv": text}))) for text in answers])
            grader.close()
        assert not snapshots(afresh)
    assert verdicts[0] == verdicts[1]
    assert [outcome for outcome, *_ in verdicts[0]] == ["passed", "tests_failed", "compile_failed"]
    assert [record.message for record in caplog.records if "this machine is another" in record.message]


def test_a_snapshot_is_made_once_and_no_job_can_change_it(docker_executor):
    (memory,) = snapshots(docker_executor)
    before = hashlib.sha256(memory.read_bytes()).hexdigest()
    done = run(
        docker_executor,
        "sh",
        "-c",
        "for f in memory restore take.so new; do echo x >> /snapshot/$f && echo wrote; done",
    )
    assert "wrote" not in done.output
    assert [memory] == snapshots(docker_executor)
    assert hashlib.sha256(memory.read_bytes()).hexdigest() == before


def test_system_calls_that_no_harness_needs_are_refused(docker_executor):
    program = (
        "import ctypes, os, socket\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "for name, number, *words in (('unshare', 272, 0x10000000), ('mount', 165, 0, 0, 0, 0, 0), ('ptrace', 101, 0, 0, 0, 0),\n"
        "    ('process_vm_readv', 310, os.getppid(), 0, 0, 0, 0, 0), ('keyctl', 250, 0, 0, 0), ('bpf', 321, 0, 0, 0),\n"
        "    ('io_uring_setup', 425, 1, 0), ('perf_event_open', 298, 0, 0, -1, -1, 0), ('setns', 308, 0, 0),\n"
        "    ('userfaultfd', 323, 0), ('clone', 56, 0x10000011, 0, 0, 0, 0), ('personality', 135, 0x0040000)):\n"
        "    if libc.syscall(number, *words) != -1 or ctypes.get_errno() != 1: print(name, 'is allowed', ctypes.get_errno())\n"
        "for family in (16, 17, 38, 40):\n"
        "    try: socket.socket(family, socket.SOCK_RAW); print('family', family, 'is allowed')\n"
        "    except PermissionError: pass\n"
        "server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname())\n"
        "print('the end')\n"
    )
    assert run(docker_executor, "python3", "-c", program).output == "the end\n"
