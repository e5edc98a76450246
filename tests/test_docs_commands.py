"""The command lines of the pages that need nothing but this machine, run as a newcomer would type them."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rtl_core.history.store import History
from tests.command import run

REPOSITORY = Path(__file__).parents[1]
PAGES = ["README", *sorted(f"docs/{page.stem}" for page in REPOSITORY.glob("docs/*.md"))]
HERE = re.compile(
    r"""(\.venv/bin/)?rtl-distill\ (query|show\ (ROLLOUT|demo/)|watch|grade\ (answers\ examples|audit\ demo)
    |admin\ (snapshot|export|(checkpoints|cost)\ RUN\s*(\#|$))|check\ (demo|cvdp|verilog-9b)\b|deploy\ status
    |problems\ (new|check|show\ pairs|describe|doubt|validate\ --source\ (pairs|rtl=rtl))
    |problems\ export\ --as\ (inspect|nemo-gym))|mkdir|cat\ >""",
    re.X,
)
"""What is run: the others need a key, a public data set, an endpoint, a server, or hours."""
MAY_FAIL = re.compile(r"check (cvdp|verilog-9b)|deploy status|problems check mine")
"""Without a key, a data set or a server these say what is missing: exit code 1 or 2."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a finished run `demo`, and the repository's examples."""
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    done = run("train", "demo-small", sets=["run.name=demo"], cwd=folder, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


def lines_of(page):
    """The command lines of a page's blocks; one with a text in the shell's `<<'END'` is a command with that text."""
    text = (REPOSITORY / f"{page}.md").read_text(encoding="utf-8")
    # Language, block, end, text between blocks, ...
    _, *parts = re.split(r"^```(.*)$", text, flags=re.M)
    for language, block in zip(parts[::4], parts[1::4], strict=True):
        if language not in ("", "bash"):
            continue
        whole = block.replace("\\\n", " ")
        yield from re.findall(r"^cat > [^\n]*<<(?:.*\n)+?END$|^.+$", whole, re.M)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_command_lines_of_a_page_run(page, folder):
    history = History(folder / "runs/history.duckdb", read_only=True)
    rollout = history.column("SELECT min(rollout) FROM rollouts")[0]
    place = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for line in filter(HERE.match, lines_of(page)):
        command = re.sub(r"ROLLOUT|demo/step/\S+", rollout, line.replace(".venv/bin/", ""))
        command = re.sub(r"\bRUN\b", "demo", re.sub("/(tmp|backup)/", f"{folder}/", command))
        done = subprocess.run(["bash", "-c", command], cwd=folder, env={**os.environ, "PATH": place}, capture_output=True, text=True, check=False, timeout=600)  # fmt: skip
        said = f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.returncode in ((0, 1, 2) if MAY_FAIL.search(line) else (0,)), said
        assert "Traceback" not in done.stdout + done.stderr, said
