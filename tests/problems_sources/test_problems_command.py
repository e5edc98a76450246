"""The commands around problem sets, as a user types them."""

import hashlib
import json
import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from rtl_core.problems.fetch import CVDP
from tests.answering import Answer, answering
from tests.command import run

FILES = {"cvdp_a.jsonl": b'{"id": 1}\n', "nested/cvdp_b.jsonl": b'{"id": 2}\n', "README.md": b"# hello\n"}


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run(*words, timeout=600, env=environment)


class Hub:
    """A stand-in for the Hugging Face hub, which cannot be reached from a test: one data set, in the hub's protocol.

    `files` may change between fetches; `cut` holds names of files of which only the first half is sent; `sent` are the names of
    the files whose content was sent.
    """

    def __init__(self, repository: str, files: dict[str, bytes], large: bool = False) -> None:
        self.repository, self.files, self.large = repository, files, large
        self.cut: set[str] = set()
        self.sent: list[str] = []

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()

    def entry(self, name: str) -> dict[str, Any]:
        """A file as the hub lists it: git's hash of its content or, for a large one, of its pointer and its own SHA-256."""
        body = self.files[name]
        oid = hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()
        lfs = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
        return {"type": "file", "path": name, "size": len(body), "oid": oid} | ({"lfs": lfs} if self.large else {})

    def answer(self, method: str, path: str, _: bytes) -> Answer:
        path = path.split("?")[0]
        if path.startswith(f"/api/datasets/{self.repository}/revision/"):
            about = {"id": self.repository, "sha": self.commit, "tags": ["license:mit"]}
            return 200, {"Content-Type": "application/json"}, json.dumps(about).encode()
        if path.startswith(f"/api/datasets/{self.repository}/tree/{self.commit}"):
            listed = json.dumps([self.entry(name) for name in self.files])
            return 200, {"Content-Type": "application/json"}, listed.encode()
        if path.startswith(f"/datasets/{self.repository}/resolve/{self.commit}/"):
            name = path.split(f"{self.commit}/")[1]
            body, entry = self.files[name], self.entry(name)
            tag = entry["lfs"]["oid"] if self.large else entry["oid"]
            if method == "GET":
                self.sent.append(name)
            headers = {"ETag": f'"{tag}"', "X-Repo-Commit": self.commit, "Content-Length": str(len(body))}
            return 200, headers, body[: len(body) // 2] if name in self.cut else body
        return 404, {"X-Error-Code": "RepoNotFound"}, b""


def test_fetch_brings_the_matching_files_and_records_their_checksums(tmp_path):
    served = Hub("some/set", FILES)
    with answering(served.answer) as endpoint:
        words = ("problems", "fetch", "some/set", "--into", str(tmp_path / "set"))
        done = command(*words, HF_ENDPOINT=endpoint)
        assert done.returncode == 0, done.stderr
        record = json.loads((tmp_path / "set" / "fetched.json").read_text())
        assert (record["repository"], record["revision"], record["licence"]) == ("some/set", served.commit, "mit")
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


def test_the_pattern_in_the_help_of_fetch_names_files():
    (pattern,) = re.findall(r'--pattern "(.+?)"', command("problems", "fetch", "--help").stdout)
    assert fnmatch("cvdp_v1.1.0_nonagentic_code_generation_no_commercial.jsonl", pattern)


def test_list_prints_a_line_a_problem_on_a_narrow_terminal_too():
    listed = command("problems", "list", "--source", "starter", COLUMNS="40").stdout.splitlines()
    (row,) = (line.split() for line in listed if line.startswith("starter_adder_d07e3f57d5"))
    assert row[1:] == ["starter", "train", "cid003", "easy", "yes", "mini_net", "from", "golden", "(certain)"]


@pytest.fixture
def published(cvdp):
    """The files of CVDP that are here, under the names that they have on the hub, beside others that are not for training."""
    agentic = (cvdp / "cvdp_v1.0.2_agentic_code_generation_no_commercial.jsonl").read_bytes()
    return {
        "README.md": b"# CVDP\n",
        "cvdp_v1.1.0_agentic_code_generation_no_commercial.jsonl": agentic,
        "cvdp_v1.1.0_agentic_heavy_code_generation_no_commercial.jsonl": b"{}\n",
        "cvdp_v1.1.0_nonagentic_code_generation_no_commercial.jsonl": (
            cvdp.parent / "cvdp-single" / "problems.jsonl"
        ).read_bytes(),
    }


@pytest.mark.slow
def test_fetch_cvdp_puts_the_files_where_the_shipped_configuration_looks(tmp_path, published, monkeypatch):
    monkeypatch.chdir(tmp_path)
    missing = command("problems", "list", "--config", "cvdp")
    assert missing.returncode == 2
    assert "get it with `rtl-distill problems fetch cvdp`" in missing.stderr
    served = Hub("nvidia/cvdp-benchmark-dataset", published, large=True)
    with answering(served.answer) as endpoint:
        done = command("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert done.returncode == 0, done.stderr
        assert "licence: CC BY 4.0, its code Apache-2.0" in done.stdout
        wanted = sorted(name for name in published if "agentic_code" in name)
        assert sorted(served.sent) == wanted
        record = json.loads(Path("data/cvdp/fetched.json").read_text())
        assert sorted(f["path"] for f in record["files"]) == wanted
        assert record["licence"].startswith("CC BY 4.0")

        again = command("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert again.returncode == 0
        assert "unchanged: nothing was downloaded" in again.stdout
        assert sorted(served.sent) == wanted, "nothing was sent a second time"

        served.files = {**published, wanted[0]: published[wanted[0]] + b"\n"}
        newer = command("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert f"downloaded: {wanted[0]}\n" in newer.stdout
        assert served.sent[len(wanted) :] == [wanted[0]]
    listed = command("problems", "list", "--config", "cvdp")
    assert listed.returncode == 0, listed.stderr
    assert "cvdp_copilot_lfsr_0007" in listed.stdout


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_a_file_that_was_cut_short_is_never_taken_for_whole(tmp_path, published, monkeypatch, large):
    monkeypatch.chdir(tmp_path)
    served = Hub("nvidia/cvdp-benchmark-dataset", published, large)
    name = CVDP.files[0]
    served.cut = {name}
    with answering(served.answer) as endpoint:
        cut = command("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert cut.returncode == 2
        assert "fetch again" in cut.stderr
        assert "Traceback" not in cut.stderr
        assert not CVDP.path.exists()
        assert not Path("data/cvdp/fetched.json").exists()
        served.cut = set()
        assert command("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint).returncode == 0
        assert CVDP.path.read_bytes() == published[name]

        # A file that lost its end later, without a record of it, and with the hub's client believing that it has it.
        Path("data/cvdp/fetched.json").unlink()
        CVDP.path.write_bytes(published[name][:-100])
        mended = command("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert f"downloaded: {name}\n" in mended.stdout
        assert CVDP.path.read_bytes() == published[name]


def test_a_set_that_nobody_knows_and_a_repository_without_the_files_are_told(tmp_path):
    nobody = command("problems", "fetch", "cvpd")
    assert nobody.returncode == 2
    assert "no set is known as 'cvpd'" in nobody.stderr
    with answering(Hub("nvidia/cvdp-benchmark-dataset", FILES).answer) as endpoint:
        renamed = command("problems", "fetch", "cvdp", "--into", str(tmp_path), HF_ENDPOINT=endpoint)
    assert renamed.returncode == 2
    assert f"holds no file that matches {CVDP.files[0]}" in renamed.stderr
    assert "cvdp_a.jsonl" in renamed.stderr


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "could not be fetched"),
    ],
)
def test_fetch_without_a_network_says_so_and_what_to_do(tmp_path, environment, said):
    done = command("problems", "fetch", "--into", str(tmp_path / "set"), **environment)
    assert done.returncode == 2
    assert said in done.stderr
    assert "copy" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("train", "cvdp"),
        pytest.param(("validate", "cvdp"), marks=pytest.mark.slow),
        ("validate", "--source", "cvdp=data/cvdp"),
        ("grade", str(CVDP.path)),
    ],
)
def test_a_missing_data_set_is_told_with_the_command_that_gets_it(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    more = ("--answers", "answers.jsonl", "--output", "out.jsonl") if words[0] == "grade" else ()
    Path("answers.jsonl").write_text("")
    done = command(*words, *more)
    assert done.returncode == 2
    assert ("cannot read the problem file data/cvdp" if words[0] == "grade" else "there is no data/cvdp") in done.stderr
    assert "get it with `rtl-distill problems fetch cvdp`\n" in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.slow
def test_an_estimate_needs_no_data_set_and_names_the_command_that_gets_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = command("estimate", "cvdp")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert f"there is no {CVDP.path} (get it with `rtl-distill problems fetch cvdp`): 302 problems" in said


def test_list_shows_interfaces_with_source_and_confidence_and_all_that_is_left_out(data):
    done = command("problems", "list", "--source", f"cvdp={data / 'cvdp'}", "--source", f"rtllm={data / 'RTLLM'}")
    assert done.returncode == 0, done.stderr
    assert "lfsr_8bit from golden (certain)" in done.stdout
    assert "(low)" in done.stdout
    assert "left out: cvdp_copilot_barrel_shifter_0031" in done.stdout
    assert "to train on" in done.stdout


@pytest.mark.slow
def test_show_prints_one_problem_whole(data):
    words = ("problems", "show", "cvdp_copilot_lfsr_0001", "--source", f"cvdp={data / 'cvdp'}")
    done = command(*words, "--golden", "--harness")
    assert done.returncode == 0, done.stderr
    for part in ("fingerprint", "lfsr_out", "Galois", "--- golden: rtl/lfsr_8bit.sv", "--- harness: src/test_lfsr.py"):
        assert part in done.stdout
    missing = command("problems", "show", "copilot_lfsr", "--source", f"cvdp={data / 'cvdp'}")
    assert missing.returncode == 2
    assert "perhaps cvdp_copilot_lfsr_0001" in missing.stderr.replace("\n", " ")
