"""Requirements on every executor: the workspace, results, limits, isolation and robustness."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.common import marked
from rtl_core.errors import InfrastructureError
from rtl_grader.grading import limits
from rtl_grader.grading.executors import make_executor
from rtl_grader.grading.executors.base import Job, Mount, Step
from rtl_grader.grading.executors.bubblewrap import BubblewrapExecutor
from rtl_grader.grading.limits import Limits
from tests.grading.conftest import below, kill_sandboxes
from tests.places import REPOSITORY
from tests.waiting import wait_for

SMALL = Limits(
    wall_s=60,
    cpu_s=5,
    memory_mb=1024,
    processes=40,
    file_mb=8,
    disk_mb=32,
    output_kb=8,
    output_mb=4,
)


@pytest.fixture(
    scope="module",
    params=[
        "bubblewrap",
        *(pytest.param(n, marks=pytest.mark.docker) for n in ("docker", "installed")),
    ],
)
def executor(request):
    """`make test-docker` adds Docker, and bubblewrap with the tools of Docker's image."""
    installed = request.param == "installed" and request.getfixturevalue("installed")
    with (
        BubblewrapExecutor(installed) if installed else make_executor(request.param) as started
    ):
        yield started


@contextlib.contextmanager
def stopped(executor):
    """Pause all processes in an executor's sandboxes, as when the machine is suspended."""
    if executor.name == "docker":
        entries = executor._api.containers(
            filters={"label": f"rtl-distill.owner={executor._owner}"}
        )
        for entry in entries:
            executor._api.pause(entry["Id"])
        yield
        for entry in entries:
            executor._api.unpause(entry["Id"])
    else:
        inside = [pid for cell in list(executor._busy) for pid in below(cell._process.pid)]
        for signalled in (signal.SIGSTOP, signal.SIGCONT):
            for pid in inside:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signalled)
            if signalled == signal.SIGSTOP:
                yield


def running(marker):
    """Ids of this machine's processes with `marker` in the command line."""
    return marked(marker, "cmdline")


def is_gone(marker):
    return wait_for(lambda: not running(marker), f"the end of {marker}")


# The workspace


def test_context_answer_and_harness_are_in_the_directories_of_cvdp(shell):
    files = {"rtl/sub/a.sv": "answer", "docs/spec.md": "words", "verif/tb.sv": "bench"}
    done = shell("cat /code/rtl/sub/a.sv /code/docs/spec.md /code/verif/tb.sv /src/t.py /code/src/t.py; pwd; echo $HOME",
                 files=files, harness={"src/t.py": "test"})  # fmt: skip
    assert (done.exit_code, done.output) == (
        0,
        "answerwordsbenchtesttest/code/rundir\n/code/rundir\n",
    )


def test_the_harness_overrides_the_answer_and_is_read_only_at_every_mount(shell):
    command = (
        "for f in /src/t.py /code/src/t.py /src/conftest.py /code/src/conftest.py; do (echo x > $f) 2>/dev/null && echo wrote $f; done;"
        "rm -f /src/t.py; mv /code/src /code/s2 2>/dev/null && echo moved; chmod 777 /code/src 2>/dev/null && echo chmod; cat /src/t.py"
    )
    done = shell(
        "(" + command + ") 2>/dev/null",
        files={"src/t.py": "forged"},
        harness={"src/t.py": "real"},
    )
    assert done.output == "real"


def test_the_other_directories_are_writable(shell):
    done = shell(
        "for d in docs rundir rtl verif; do echo x > /code/$d/new || exit 1; done; mkdir -p /rundir/harness/.cache"
    )
    assert done.exit_code == 0


def test_volumes_of_the_compose_file_are_mounted(shell):
    done = shell("cat /code/extra/a.sv; (echo x > /code/extra/b) 2>/dev/null || echo read-only", files={"rtl/a.sv": "a"},
                 mounts=(Mount("src", "/src"), Mount("rtl", "/code/extra")))  # fmt: skip
    assert done.output == "aread-only\n"


def test_environment_of_a_step_and_fixed_seeds(shell):
    done = shell(
        "echo $SIM-$PYTHONPATH-$COCOTB_RANDOM_SEED-$PYTHONHASHSEED",
        env={"SIM": "icarus", "PYTHONPATH": "/src"},
        seed=7,
    )
    assert done.output.startswith("icarus-/src:")
    assert done.output.endswith("-7-0\n")
    own = shell("echo $RANDOM_SEED-$COCOTB_RANDOM_SEED", env={"RANDOM_SEED": "123"}, seed=7)
    assert own.output == "123-\n", "a seed that the harness sets is kept"


def test_unseeded_random_numbers_depend_only_on_the_seed_of_the_job(shell):
    command = "python3 -c 'import random; print(random.random(), random.getrandbits(64))'"
    first, second, other = (
        shell(command, seed=3),
        shell(command, seed=3),
        shell(command, seed=4),
    )
    assert first.output == second.output != other.output


@pytest.mark.parametrize(
    "path", ["../escape", "/etc/escape", "rtl/../../escape", "src/../../x"]
)
def test_a_path_outside_the_workspace_is_never_written(executor, path):
    with pytest.raises(InfrastructureError, match="outside"):
        executor.run(Job({path: "x"}, {}, (Step("direct", ("true",)),)))
    assert not Path("/escape").exists()
    assert not Path("/etc/escape").exists()


# Results


def test_exit_codes_signals_and_missing_programs_are_reported(executor, shell):
    assert shell("exit 3").exit_code == 3
    assert shell("kill -SEGV $$").exit_code == -signal.SIGSEGV
    assert shell("true").exit_code == 0
    done = executor.run(Job({}, {}, (Step("direct", ("no-such-tool", "x")),))).steps[0]
    assert done.exit_code == 127
    assert "no-such-tool" in done.output


def test_services_run_in_order_in_one_workspace(executor):
    steps = (Step("one", ("sh", "-c", "echo 1 > a; exit 4")), Step("two", ("cat", "a")))
    results = executor.run(Job({}, {}, steps)).steps
    assert [(r.name, r.exit_code, r.output) for r in results] == [
        ("one", 4, ""),
        ("two", 0, "1\n"),
    ]
    assert len(executor.run(Job({}, {}, steps, stop_at_failure=True)).steps) == 1


def test_output_and_errors_are_joined_and_shortened_in_the_middle(shell):
    done = shell(
        "echo start; head -c 100000 /dev/zero | tr '\\0' x; echo end 1>&2", limits=SMALL
    )
    assert done.output.startswith("start\n")
    assert done.output.endswith("end\n")
    assert "left out" in done.output
    assert len(done.output) < 20_000


# Limits


def test_a_timeout_ends_all_processes_even_in_other_sessions(shell):
    started = time.monotonic()
    command = "(setsid sleep 98761.5 &) ; (setsid sh -c 'trap \"\" TERM HUP INT; sleep 98761.5' &); sleep 98761.5"
    done = shell(command, limits=SMALL.model_copy(update={"wall_s": 0.6}))
    assert (done.exit_code, done.overrun) == (None, "wall")
    assert time.monotonic() - started < 3600
    assert is_gone("98761.5")


def test_processes_that_a_step_leaves_behind_end_with_it_even_if_they_hold_its_output_open(
    shell,
):
    started = time.monotonic()
    assert (
        shell("(setsid sleep 98762.5 >/dev/null 2>&1 &); sleep 98762.5 & exit 0").exit_code == 0
    )
    assert time.monotonic() - started < 3600
    assert is_gone("98762.5")


def test_cpu_time_is_limited(shell):
    done = shell(
        "while :; do :; done", limits=SMALL.model_copy(update={"cpu_s": 1, "wall_s": 600})
    )
    assert done.overrun == "cpu"


BURN = "burn() { i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; }; "
"""Uses some hundredths of a second of CPU."""
SPREAD = {
    "concurrent processes": "for n in 1 2 3 4; do (while :; do burn; done) & done; wait",
    "consecutive processes": "while :; do (burn); done",
    "another session": "setsid sh -c 'while :; do :; done' & sleep 98765.5",
    "children of another process": "(while :; do (burn); done) & sleep 98765.5",
    "orphans": "for n in 1 2 3 4; do (sh -c 'while :; do :; done' &) ; done; sleep 98765.5",
    "another thread": 'python3 -c "import threading; t = threading.Thread(target=lambda: [None for _ in iter(int, 1)]); t.start(); t.join()"',
}


@pytest.mark.parametrize("name", SPREAD)
def test_cpu_time_of_all_processes_together_is_limited(shell, name):
    done = shell(
        BURN + SPREAD[name], limits=SMALL.model_copy(update={"wall_s": 600}), budget_s=0.5
    )
    assert done.overrun == "cpu"
    assert done.cpu_s > 0.5
    assert is_gone("98765.5")


def test_processes_that_only_sleep_end_after_the_budget(shell):
    done = shell(
        "sleep 98766.5 | sleep 98766.5",
        limits=SMALL.model_copy(update={"wall_s": 600}),
        budget_s=0.5,
    )
    assert done.overrun == "asleep"
    assert done.asleep_s > 0.5
    assert is_gone("98766.5")


def test_short_sleeps_and_sleeps_without_a_budget_are_allowed(shell):
    now_and_then = BURN + "for n in 1 2 3 4 5 6; do sleep 0.15; burn; done"
    assert shell(now_and_then, limits=SMALL, budget_s=0.5).exit_code == 0
    assert shell("sleep 1.5", limits=SMALL.model_copy(update={"cpu_s": 1})).exit_code == 0


@pytest.mark.slow
def test_time_spent_waiting_for_a_busy_core_is_not_counted(shell):
    # All on one core: otherwise the scheduler may give the sandbox its own.
    core = min(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            spinner = stack.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            stack.callback(spinner.kill)
            os.sched_setaffinity(spinner.pid, {core})
        done = shell(
            f"python3 -c 'import os, time\nos.sched_setaffinity(0, [{core}])\nwhile time.process_time() < 0.7: pass'",
            limits=SMALL.model_copy(update={"wall_s": 0.9}),
            budget_s=0.9,
        )
    assert (done.exit_code, done.overrun) == (0, None)
    assert done.wall_s > 0.9


def test_time_while_the_sandbox_is_stopped_is_not_counted(executor, shell):
    with ThreadPoolExecutor(1) as pool:
        limits = SMALL.model_copy(update={"wall_s": 1.5})
        waiting = pool.submit(shell, "sleep 0.91824; echo done", limits=limits, budget_s=1.5)
        wait_for(lambda: running("sleep\x000.91824"), "the job")
        with stopped(executor):
            time.sleep(2)
        assert waiting.result().output == "done\n"


def test_memory_of_one_process_is_limited(shell):
    done = shell("python3 -c 'x = bytearray(3 << 30)' 2>&1 | tail -1", limits=SMALL)
    assert "MemoryError" in done.output


def test_memory_of_many_processes_together_is_limited(shell):
    hog = "python3 -c 'import time; x = b\"x\" * (300 << 20); time.sleep(600)'"
    done = shell(
        f"for i in 1 2 3 4 5 6; do {hog} & done; wait",
        limits=SMALL.model_copy(update={"wall_s": 600}),
    )
    assert done.overrun == "memory"


def test_a_fork_bomb_ends_and_the_next_job_works(shell):
    started = time.monotonic()
    done = shell(
        "bomb() { bomb | bomb & }; bomb; sleep 1; bomb; wait",
        limits=SMALL.model_copy(update={"wall_s": 3}),
    )
    assert done.exit_code != 0 or done.overrun or "fork" in done.output
    assert time.monotonic() - started < 300
    assert shell("echo well").output == "well\n"


@pytest.mark.parametrize(
    ("known", "end"),
    [
        ("0 0 4294967295\n", 1 << 31),
        ("0 100000 65536\n", 65536),
        ("0 1000 1\n1 100000 65536\n", 65537),
    ],
)
def test_the_user_of_a_job_is_in_its_namespace(tmp_path, known, end):
    """Without a user namespace, with remapped users, and with a rootless engine."""
    (tmp_path / "uid_map").write_text(known)
    inside = Path(limits.__file__).parent / "inside"
    told = f"import agent; print(*(agent.own_uid({str(tmp_path / 'uid_map')!r}) for _ in range(200)))"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=inside, capture_output=True, text=True, check=True
    )
    users = [int(word) for word in done.stdout.split()]
    assert all(61_000 <= user < end for user in users)
    assert len(set(users)) > 100


def test_processes_of_other_executors_do_not_count_against_a_sandbox(executor, shell):
    """The kernel limits processes per user."""
    marker = "sleep 987"
    steps = (Step("hog", ("sh", "-c", f"for i in $(seq 36); do {marker} & done; wait")),)
    other = make_executor(executor.name)
    with ThreadPoolExecutor(1) as pool:
        held = pool.submit(other.run, Job({}, {}, steps, limits=SMALL))
        try:
            wait_for(lambda: len(running(marker.replace(" ", "\0"))) >= 36, "its processes")
            done = shell("for i in $(seq 20); do sleep 1 & done; wait; echo well", limits=SMALL)
        finally:
            other.close()
            held.exception()
    assert (done.exit_code, done.output) == (0, "well\n")


def test_a_full_disk_affects_only_its_own_job(shell):
    command = "for i in 1 2 3 4 5 6 7 8; do head -c 7000000 /dev/zero > $1/f$i; done 2>&1 | grep -c 'No space'"
    for place in ("/code/rundir", "/tmp", "/dev/shm", "/rundir"):
        assert shell(command.replace("$1", place), limits=SMALL).output.strip() != "0", place
    assert shell("head -c 7000000 /dev/zero > f && ls /tmp /dev/shm /rundir").exit_code == 0
    assert shell("head -c 20000000 /dev/zero > f", limits=SMALL).exit_code != 0, (
        "the size of one file is limited"
    )


def test_endless_output_is_stopped_and_shortened(shell):
    done = shell("yes", limits=SMALL)
    assert done.overrun == "output"
    assert len(done.output) < 20_000


# Isolation


def test_there_is_no_network(shell):
    probe = (
        "import socket\n"
        "for address in (('1.1.1.1', 53), ('10.0.0.1', 80), ('169.254.169.254', 80)):\n"
        "    try: socket.create_connection(address, 1); print('reached', address)\n"
        "    except OSError: pass\n"
    )
    assert (
        shell(
            "python3 -c \"$P\"; ls /sys/class/net 2>/dev/null | grep -v '^lo$'",
            env={"P": probe},
        ).output
        == ""
    )


def test_a_step_runs_as_an_ordinary_user_without_capabilities(shell):
    done = shell(
        "id -u; grep -E 'CapEff|NoNewPrivs' /proc/self/status; kill -9 1 2>/dev/null; kill -TERM 1 2>/dev/null; sleep 0.1; echo alive"
    )
    lines = done.output.split()
    assert lines[0] != "0"
    assert lines[2] == "0000000000000000"
    assert lines[4] == "1"
    assert lines[-1] == "alive"


def test_home_repository_and_secrets_are_not_visible(shell):
    done = shell(
        "ls /root /home /work 2>/dev/null | grep -vE '^$'; cat /etc/shadow /etc/machine-id 2>/dev/null; env | grep -iE 'token|key|secret'; ls /code/src"
    )
    repository = REPOSITORY
    assert not (repository / "README.md").exists() or "README" not in done.output
    assert shell(f"ls {repository}/rtl_core {repository}/.git 2>/dev/null").output == ""
    assert shell("cat /etc/shadow").exit_code != 0


def test_system_directories_cannot_be_written(shell):
    command = "for d in / /usr /usr/bin /etc /guard /guard/lib /dev /proc/sys/kernel /bin; do touch $d/x 2>/dev/null && echo $d; done"
    assert shell(command).output == ""


def test_the_agent_and_its_socket_cannot_be_reached(shell):
    command = (
        "for p in /proc/[0-9]*; do [ $p = /proc/$$ ] && continue; for f in mem environ fd/3; do"
        " head -c1 $p/$f >/dev/null 2>&1 && grep -qa 'agent[.]py' $p/cmdline && echo $p/$f; done; done"
    )
    assert shell(command).output == ""


LEAVING = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
places = [top for top, _, _ in os.walk("/") if not top.startswith(("/proc/", "/sys/"))]
if sys.argv[1] == "leave":
    for place in places:
        try: open(place + "/left", "w").close()
        except OSError: continue
    libc.mq_open(b"/left", os.O_CREAT | os.O_RDWR, 0o666, None)
    libc.shmget(4711, 4096, 0o1666)
    print(sum(os.path.exists(place + "/left") for place in places))
else:
    found = [place for place in places if os.path.exists(place + "/left")]
    if libc.mq_open(b"/left", os.O_RDWR) != -1: found.append("a message queue")
    if libc.shmget(4711, 4096, 0) != -1: found.append("shared memory")
    print(found, os.listdir("/control") if os.access("/control", os.R_OK) else "")
"""


@pytest.mark.slow
def test_no_file_queue_or_shared_memory_survives_a_job(shell):
    left = shell('python3 -c "$P" leave', env={"P": LEAVING}).output
    assert int(left) > 6  # /code/rtl, /code/rundir, ..., /tmp, /dev/shm
    assert shell('python3 -c "$P" look', env={"P": LEAVING}).output == "[] \n"


def test_steps_cannot_create_namespaces(shell):
    program = (
        "import ctypes, errno, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "unshare, clone = {'x86_64': (272, 56)}.get(os.uname().machine, (97, 220))\n"
        "for flags in (1 << n for n in (17, 25, 26, 27, 28, 29, 30)):\n"
        "    for number, words in ((unshare, (flags,)), (clone, (flags | 17, 0, 0, 0, 0))):\n"
        "        if libc.syscall(number, *words) != -1 or ctypes.get_errno() != errno.EPERM: print(hex(flags), number)\n"
        "print(libc.syscall(435, 0, 0), errno.errorcode[ctypes.get_errno()])\n"
    )
    assert shell('python3 -c "$P"', env={"P": program}).output == "-1 ENOSYS\n"


# Concurrency and failures


def test_concurrent_jobs_do_not_mix(executor):
    def one(number):
        step = Step(
            "direct", ("sh", "-c", f"echo {number} > mine; sleep 0.05; cat mine /code/rtl/a")
        )
        return executor.run(Job({"rtl/a": f"{number}\n"}, {}, (step,))).steps[0].output

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(30))) == [f"{n}\n{n}\n" for n in range(30)]


def test_a_killed_sandbox_is_replaced_and_its_job_retried(executor):
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(
            executor.run,
            Job({}, {}, (Step("direct", ("sh", "-c", "sleep 0.91823; echo done")),)),
        )
        wait_for(lambda: running("sleep\x000.91823"), "the job")
        kill_sandboxes(executor)
        assert waiting.result().steps[0].output == "done\n"
    assert (
        executor.run(Job({}, {}, (Step("direct", ("echo", "well")),))).steps[0].output
        == "well\n"
    )


def test_a_killed_grader_leaves_no_process_and_no_workspace(executor):
    program = (
        "from rtl_grader.grading.executors import make_executor\n"
        "from rtl_grader.grading.executors.base import Job, Step\n"
        f"make_executor({executor.name!r}).run(Job({{}}, {{}}, (Step('direct', ('sleep', '98764.5')),)))\n"
    )
    with subprocess.Popen([sys.executable, "-c", program]) as grader:
        wait_for(lambda: running("98764.5"), "the job")
        grader.kill()
    assert is_gone("98764.5")


def test_a_closed_executor_refuses_jobs(executor):
    job = Job({}, {}, (Step("direct", ("true",)),))
    with make_executor(executor.name) as closed:
        closed.run(job)
    with pytest.raises(InfrastructureError, match="closed"):
        closed.run(job)
