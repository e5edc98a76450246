"""Containers let a step do less than Docker would."""

import pytest

from rtl_core.grading.executors import make_executor
from rtl_core.grading.executors.base import Job, Step

pytestmark = pytest.mark.docker


def test_system_calls_that_no_harness_needs_are_refused():
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
    with make_executor("docker") as executor:
        done = executor.run(Job({}, {}, (Step("direct", ("python3", "-c", program)),)))
    assert done.steps[0].output == "the end\n"
