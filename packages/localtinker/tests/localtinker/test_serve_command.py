"""The command `localtinker serve-tinker`."""

import os
import re
import signal
import subprocess
import sys

import httpx
import pytest
import tinker
from localtinker_helpers import params, prompt

from localtinker import http_server
from localtinker.errors import SettingsError
from localtinker.settings import check_exposure, parse_models
from rtl_distill import cli
from rtl_grader import http_server as grading_server

COMMAND = [sys.executable, "-c", "from rtl_distill.cli import main; main()", "serve", "tinker"]


def start(*arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TINKER_")}
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def printed_variables(process):
    """Return the variables of the two `export` lines."""
    lines = [process.stdout.readline() for _ in range(2)]
    return dict(re.fullmatch(r"export (\w+)=(\S+)\n", line).groups() for line in lines)


def test_it_prints_the_environment_variables_of_a_client(models_by_name, tmp_path, monkeypatch):
    student = str(models_by_name["student"])
    process = start("--model", student, "--state", str(tmp_path), "--sampling-processes", "0")
    try:
        variables = printed_variables(process)
        assert variables.keys() == {"TINKER_BASE_URL", "TINKER_API_KEY"}
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        with tinker.ServiceClient() as client:  # reads both from the environment
            sampler = client.create_sampling_client(base_model="student").result()
            assert len(sampler.sample(prompt(), 1, params(5)).result().sequences[0].tokens) == 5
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0
        process.stdout.close()
        process.stderr.close()


def test_invalid_options_give_a_one_line_error(models_by_name, tmp_path, monkeypatch, capsys):
    student = str(models_by_name["student"])
    for arguments, message in (
        (("--model", str(tmp_path)), "no config.json"),
        (("--model", student.replace("student", "studnt")), f"did you mean {student}"),
        (("--model", student, "--dtype", "int4"), "'int4' is not one of"),
        (("--model", student, "--host", "0.0.0.0"), "a key is required"),
    ):
        monkeypatch.setattr(sys, "argv", ["rtl-distill", "serve", "tinker", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        output, errors = capsys.readouterr()
        assert (ended.value.code, output) == (2, "")
        assert message in errors


def test_other_machines_need_a_key():
    check_exposure("127.0.0.1", None)
    check_exposure("::1", None)
    check_exposure("localhost", None)
    check_exposure("0.0.0.0", "tml-secret")
    for host in ("0.0.0.0", "192.168.1.5", "::", "example.org"):
        with pytest.raises(SettingsError, match="key"):
            check_exposure(host, None)
    with pytest.raises(SettingsError, match="tml-"):
        check_exposure("127.0.0.1", "secret")


def test_a_models_name_precedes_its_path_or_is_that_of_its_folder(tmp_path):
    (odd := tmp_path / "rate=1e-4").mkdir()
    models = {"Qwen/Qwen3-8B": tmp_path, tmp_path.name: tmp_path, odd.name: odd}
    assert parse_models([f"Qwen/Qwen3-8B={tmp_path}", str(tmp_path), str(odd)]) == models
    with pytest.raises(SettingsError, match="two models are named 'final'"):
        parse_models(["one/final", "two/final"])


@pytest.mark.parametrize(
    ("host", "url"), [("::1", "http://[::1]:81"), ("a.b", "http://a.b:81")]
)
def test_the_announced_url_can_be_opened(host, url):
    for server in (http_server, grading_server):
        assert server.url_of(host, 81) == url == str(httpx.URL(url))
