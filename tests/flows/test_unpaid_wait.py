"""A run that waits for credit (402) says so, and Ctrl-C ends it immediately."""

import os
import signal
import subprocess

import pytest

from benchmarks.rehearsal.faults import PAID, Fault
from benchmarks.rehearsal.proxy import Proxy
from benchmarks.rehearsal.strikes import strike_of
from localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path
from tests.command import command


@pytest.mark.slow
def test_ctrl_c_ends_a_wait_for_credit(small_run, tmp_path):
    unpaid = Fault("402", PAID, strike_of("refused", 402, "no credit left"), lasts_s=1e6)
    models = {name: model_path(name) for name in ("student", "teacher")}
    service = LocalTinker({str(path): path for path in models.values()}, tmp_path / "service")
    with service, Proxy(service.base_url, [unpaid]) as proxy:
        named = [f"tinker.{name}={path}" for name, path in models.items()]
        overrides = small_run("unpaid", f"tinker.base_url={proxy.url}", *named)
        # A shell that starts the tests in the background makes them ignore SIGINT.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        run = subprocess.Popen(
            command("train", "demo", sets=overrides),
            env={**os.environ, "TINKER_API_KEY": service.api_key, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        assert run.stdout is not None
        try:
            said = ""
            while "no credit at Tinker (402)" not in said:
                line = run.stdout.readline()
                assert line, said
                said += line
            os.killpg(run.pid, signal.SIGINT)  # as a terminal does
            rest, _ = run.communicate(timeout=120)
        finally:
            run.kill()
    assert run.returncode == 130, said + rest
    assert "cancelled; the same command continues from here" in rest
    assert "Traceback" not in said + rest
