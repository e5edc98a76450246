"""The commands around problem sets, as a user types them."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rtl_core.config import load_config
from rtl_core.errors import ConfigError
from rtl_core.problems.sources import override_of, source_of

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {"cvdp_a.jsonl": b'{"id": 1}\n', "nested/cvdp_b.jsonl": b'{"id": 2}\n', "README.md": b"# hello\n"}


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "RTL_DISTILL__"))}
    return subprocess.run(
        [sys.executable, "-c", "from cli import main; main()", *words],
        capture_output=True, text=True, timeout=600, check=False, env={**plain, "COLUMNS": "200", **environment},
    )  # fmt: skip


class _Hub(BaseHTTPRequestHandler):
    """The three answers that the hub's library needs to list and fetch a data set's files."""

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        if path.startswith("/api/datasets/some/set/revision/"):
            self._json({"id": "some/set", "sha": COMMIT, "private": False, "downloads": 0, "likes": 0, "tags": []})
        elif path.startswith(f"/api/datasets/some/set/tree/{COMMIT}"):
            oid = {name: hashlib.sha1(body).hexdigest() for name, body in FILES.items()}
            self._json([{"type": "file", "path": n, "size": len(b), "oid": oid[n]} for n, b in FILES.items()])
        elif path.startswith(f"/datasets/some/set/resolve/{COMMIT}/"):
            body = FILES[path.split(f"{COMMIT}/")[1]]
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    do_HEAD = do_GET

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def hub() -> Iterator[str]:
    """A stand-in for the Hugging Face hub, which cannot be reached from a test."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_fetch_brings_the_matching_files_and_records_their_checksums(tmp_path: Path) -> None:
    with hub() as endpoint:
        words = ("problems", "fetch", "some/set", "--into", str(tmp_path / "set"))
        done = command(*words, HF_ENDPOINT=endpoint)
        assert done.returncode == 0, done.stderr
        record = json.loads((tmp_path / "set" / "fetched.json").read_text())
        assert (record["repository"], record["revision"]) == ("some/set", COMMIT)
        wanted = {name: body for name, body in FILES.items() if name.endswith(".jsonl")}
        assert {f["path"]: f["sha256"] for f in record["files"]} == {
            name: hashlib.sha256(body).hexdigest() for name, body in wanted.items()
        }
        for name, body in wanted.items():
            assert (tmp_path / "set" / name).read_bytes() == body
            assert hashlib.sha256(body).hexdigest() in done.stdout
        assert not (tmp_path / "set" / "README.md").exists()

        (tmp_path / "set" / "cvdp_a.jsonl").write_text("tampered\n")
        again = command(*words, HF_ENDPOINT=endpoint)
        assert again.returncode == 2
        assert "cvdp_a.jsonl" in again.stderr
        assert (tmp_path / "set" / "cvdp_a.jsonl").read_text() == "tampered\n"

        unknown = command("problems", "fetch", "no/such", "--into", str(tmp_path / "x"), HF_ENDPOINT=endpoint)
        assert unknown.returncode == 2
        assert "knows no data set no/such" in unknown.stderr


@pytest.mark.parametrize(
    ("environment", "said"),
    [({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"), ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be reached")],
)
def test_fetch_without_a_network_says_so_and_what_to_do(tmp_path: Path, environment: dict[str, str], said: str) -> None:
    done = command("problems", "fetch", "--into", str(tmp_path / "set"), **environment)
    assert done.returncode == 2
    assert said in done.stderr
    assert "copy" in done.stderr
    assert "Traceback" not in done.stderr


def test_list_shows_interfaces_with_source_and_confidence_and_all_that_is_left_out(data: Path) -> None:
    done = command("problems", "list", "--source", f"cvdp={data / 'cvdp'}", "--source", f"rtllm={data / 'RTLLM'}")
    assert done.returncode == 0, done.stderr
    assert "lfsr_8bit from golden (certain)" in done.stdout
    assert "(low)" in done.stdout
    assert "left out: cvdp_copilot_barrel_shifter_0031" in done.stdout
    assert "to train on" in done.stdout


def test_show_prints_one_problem_whole(data: Path) -> None:
    words = ("problems", "show", "cvdp_copilot_lfsr_0001", "--source", f"cvdp={data / 'cvdp'}")
    done = command(*words, "--golden", "--harness")
    assert done.returncode == 0, done.stderr
    for part in ("fingerprint", "lfsr_out", "Galois", "--- golden: rtl/lfsr_8bit.sv", "--- harness: src/test_lfsr.py"):
        assert part in done.stdout
    missing = command("problems", "show", "copilot_lfsr", "--source", f"cvdp={data / 'cvdp'}")
    assert missing.returncode == 2
    assert "perhaps cvdp_copilot_lfsr_0001" in missing.stderr.replace("\n", " ")


def test_sources_of_a_command_line_are_those_of_a_configuration(data: Path) -> None:
    texts = ["starter", f"cvdp={data / 'cvdp'}", f"verilog-eval={data / 'verilog-eval'}", f"rtllm={data / 'RTLLM'}"]
    assert load_config("demo", [override_of(texts)], environment={}).problems.sources == tuple(map(source_of, texts))


@pytest.mark.parametrize(
    ("text", "said"), [("cvpd=x", "no source 'cvpd'"), ("rtllm", "where is it"), ("cvdp=/nowhere/x", "no /nowhere/x")]
)
def test_a_wrong_source_is_named(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        source_of(text)
