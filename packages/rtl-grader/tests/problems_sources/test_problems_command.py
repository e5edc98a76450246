"""The commands for problem sets, as a user types them."""

import hashlib
import json
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from rtl_grader.problems.fetch import CVDP
from tests.answering import Answer, answering
from tests.command import invoke, run

FILES = {
    "cvdp_a.jsonl": b'{"id": 1}\n',
    "nested/cvdp_b.jsonl": b'{"id": 2}\n',
    "README.md": b"# hello\n",
}


def printed(*words: str, **environment: str) -> str:
    """Standard output of a command that succeeds."""
    done = run(*words, timeout=600, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refusal(*words: str, **environment: str) -> str:
    """Standard error of a command that fails with an error for users."""
    done = run(*words, timeout=600, env=environment)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


class Hub:
    """A stand-in for the Hugging Face hub, which tests cannot reach: one data set, in the hub's protocol.

    `files` may change between fetches. `cut` names files of which only the first half is sent; `sent` names the files sent so far.
    """

    def __init__(self, repository: str, files: dict[str, bytes], large: bool = False) -> None:
        self.repository, self.files, self.large = repository, files, large
        self.cut: set[str] = set()
        self.sent: list[str] = []

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()

    def entry(self, name: str) -> dict[str, Any]:
        """The hub's listing of a file: git's blob hash and, for a large file, the SHA-256 of its content."""
        body = self.files[name]
        oid = hashlib.sha1(f"blob {len(body)}\0".encode() + body).hexdigest()
        lfs = {"oid": hashlib.sha256(body).hexdigest(), "size": len(body), "pointerSize": 130}
        return {"type": "file", "path": name, "size": len(body), "oid": oid} | (
            {"lfs": lfs} if self.large else {}
        )

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
            headers = {
                "ETag": f'"{tag}"',
                "X-Repo-Commit": self.commit,
                "Content-Length": str(len(body)),
            }
            return 200, headers, body[: len(body) // 2] if name in self.cut else body
        return 404, {"X-Error-Code": "RepoNotFound"}, b""


def test_fetch_downloads_matching_files_and_records_their_checksums(tmp_path):
    served = Hub("some/set", FILES)
    with answering(served.answer) as endpoint:
        words = ("problems", "fetch", "some/set", "--into", str(tmp_path / "set"))
        shown = printed(*words, HF_ENDPOINT=endpoint)
        record = json.loads((tmp_path / "set" / "fetched.json").read_text())
        assert (record["repository"], record["revision"], record["licence"]) == (
            "some/set",
            served.commit,
            "mit",
        )
        wanted = {name: body for name, body in FILES.items() if name.endswith(".jsonl")}
        assert {f["path"]: f["sha256"] for f in record["files"]} == {
            name: hashlib.sha256(body).hexdigest() for name, body in wanted.items()
        }
        for name, body in wanted.items():
            assert (tmp_path / "set" / name).read_bytes() == body
            assert hashlib.sha256(body).hexdigest() in shown
        assert not (tmp_path / "set" / "README.md").exists()

        (tmp_path / "set" / "cvdp_a.jsonl").write_text("tampered\n")
        assert "cvdp_a.jsonl" in refusal(*words, HF_ENDPOINT=endpoint)
        assert (tmp_path / "set" / "cvdp_a.jsonl").read_text() == "tampered\n"

        unknown = refusal(
            "problems", "fetch", "no/such", "--into", str(tmp_path / "x"), HF_ENDPOINT=endpoint
        )
        assert "knows no data set no/such" in unknown


def test_a_known_set_of_pairs_is_fetched_and_read_with_its_licence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    golden = "module inv (input a, output y);\n  assign y = ~a;\nendmodule\n"
    row = json.dumps({"instruction": "Write inv: y is not a.", "output": golden}).encode()
    files = {"randomized_filtered_data_7b.jsonl": row, "other.jsonl": b"{}"}
    served = Hub("Nellyw888/RTL-Coder_small", files)
    with answering(served.answer) as endpoint:
        shown = printed("problems", "fetch", "rtl-coder-small", HF_ENDPOINT=endpoint)
    before, _, after = shown.partition("\n")
    assert before == "Nellyw888/RTL-Coder_small: 1 file, 0.0 MB, licence: mit"
    assert "read it with --source pairs=data/rtl-coder-small" in after
    assert served.sent == ["randomized_filtered_data_7b.jsonl"]
    listed = printed("problems", "list", "--source", "pairs=data/rtl-coder-small")
    assert "1 problem; --source holds none out" in listed
    assert "fetch rtl-coder-small`" in refusal(
        "problems", "list", "--source", "pairs=data/rtl-coder-small/none.jsonl"
    )


def test_the_pattern_in_the_help_of_fetch_names_files():
    (pattern,) = re.findall(
        r'--pattern "(.+?)"', invoke("problems", "fetch", "--help", COLUMNS="200").stdout
    )
    assert fnmatch("cvdp_v1.1.0_nonagentic_code_generation_no_commercial.jsonl", pattern)


def test_list_prints_one_line_per_problem_even_on_a_narrow_terminal():
    listed = invoke("problems", "list", "--source", "starter", COLUMNS="40").stdout.splitlines()
    (row,) = (line.split() for line in listed if line.startswith("starter_adder_d07e3f57d5"))
    assert row[1:] == [
        "starter",
        "train",
        "cid003",
        "easy",
        "yes",
        "mini_net",
        "from",
        "golden",
        "(certain)",
    ]


@pytest.fixture
def published(cvdp):
    """The local CVDP files under their names on the hub, with other files that are not for training."""
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
def test_fetch_cvdp_puts_the_files_where_the_shipped_configuration_looks(
    tmp_path, published, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert "get it with `rtl-distill problems fetch cvdp`" in refusal(
        "problems", "list", "--config", "cvdp"
    )
    served = Hub("nvidia/cvdp-benchmark-dataset", published, large=True)
    with answering(served.answer) as endpoint:
        shown = printed("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert "licence: CC BY 4.0, its code Apache-2.0" in shown
        wanted = sorted(name for name in published if "agentic_code" in name)
        assert sorted(served.sent) == wanted
        record = json.loads(Path("data/cvdp/fetched.json").read_text())
        assert sorted(f["path"] for f in record["files"]) == wanted
        assert record["licence"].startswith("CC BY 4.0")

        again = printed("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert "unchanged: nothing was downloaded" in again
        assert sorted(served.sent) == wanted, "nothing was sent a second time"

        served.files = {**published, wanted[0]: published[wanted[0]] + b"\n"}
        newer = printed("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert f"downloaded: {wanted[0]}\n" in newer
        assert served.sent[len(wanted) :] == [wanted[0]]
    assert "cvdp_copilot_lfsr_0007" in printed("problems", "list", "--config", "cvdp")


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_a_truncated_file_is_never_accepted(tmp_path, published, monkeypatch, large):
    monkeypatch.chdir(tmp_path)
    served = Hub("nvidia/cvdp-benchmark-dataset", published, large)
    name = CVDP.files[0]
    served.cut = {name}
    with answering(served.answer) as endpoint:
        assert "fetch again" in refusal("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert not CVDP.path.exists()
        assert not Path("data/cvdp/fetched.json").exists()
        served.cut = set()
        printed("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert CVDP.path.read_bytes() == published[name]

        # A file that is truncated later, without a record, while the hub's client believes that it is complete.
        Path("data/cvdp/fetched.json").unlink()
        CVDP.path.write_bytes(published[name][:-100])
        mended = printed("problems", "fetch", "cvdp", HF_ENDPOINT=endpoint)
        assert f"downloaded: {name}\n" in mended
        assert CVDP.path.read_bytes() == published[name]


def test_an_unknown_set_and_a_repository_without_the_files_are_reported(tmp_path):
    assert "no set is known as 'cvpd'" in refusal("problems", "fetch", "cvpd")
    with answering(Hub("nvidia/cvdp-benchmark-dataset", FILES).answer) as endpoint:
        renamed = refusal(
            "problems", "fetch", "cvdp", "--into", str(tmp_path), HF_ENDPOINT=endpoint
        )
    assert f"holds no file that matches {CVDP.files[0]}" in renamed
    assert "cvdp_a.jsonl" in renamed


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "could not be fetched"),
    ],
)
def test_fetch_without_a_network_says_what_to_do(tmp_path, environment, said):
    told = refusal("problems", "fetch", "--into", str(tmp_path / "set"), **environment)
    assert said in told
    assert "copy" in told


@pytest.mark.parametrize(
    "words",
    [
        ("train", "cvdp"),
        ("problems", "validate", "cvdp"),
        ("problems", "validate", "--source", "cvdp=data/cvdp"),
        ("grade", "answers", str(CVDP.path)),
    ],
)
def test_a_missing_data_set_is_reported_with_the_command_that_fetches_it(
    tmp_path, monkeypatch, words
):
    monkeypatch.chdir(tmp_path)
    more = (
        ("--answers", "answers.jsonl", "--output", "out.jsonl") if words[0] == "grade" else ()
    )
    Path("answers.jsonl").write_text("")
    told = str(invoke(*words, *more).exception)
    assert (
        "cannot read the problem file data/cvdp"
        if words[0] == "grade"
        else "there is no data/cvdp"
    ) in told
    assert told.endswith("get it with `rtl-distill problems fetch cvdp`")
    assert len(told.splitlines()) == 2


@pytest.mark.slow
def test_an_estimate_needs_no_data_set_and_names_the_command_that_fetches_it(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    said = " ".join(printed("check", "--estimate", "cvdp").split())
    assert (
        f"there is no {CVDP.path} (get it with `rtl-distill problems fetch cvdp`): 302 problems"
        in said
    )


def test_list_shows_interfaces_with_source_and_confidence_and_problems_left_out(data):
    sources = ("--source", f"cvdp={data / 'cvdp'}", "--source", f"rtllm={data / 'RTLLM'}")
    listed = invoke("problems", "list", *sources, COLUMNS="200").stdout
    for part in (
        "lfsr_8bit from golden (certain)",
        "(low)",
        "left out: cvdp_copilot_barrel_shifter_0031",
        "heldout_fraction of a configuration does",
    ):
        assert part in listed


@pytest.mark.slow
def test_show_prints_a_whole_problem(data):
    source = ("--source", f"cvdp={data / 'cvdp'}")
    shown = printed(
        "problems", "show", "cvdp_copilot_lfsr_0001", *source, "--golden", "--harness"
    )
    for part in (
        "fingerprint",
        "lfsr_out",
        "Galois",
        "--- golden: rtl/lfsr_8bit.sv",
        "--- harness: src/test_lfsr.py",
    ):
        assert part in shown
    missing = refusal("problems", "show", "copilot_lfsr", *source)
    assert "did you mean cvdp_copilot_lfsr_0001" in missing.replace("\n", " ")
