"""The verifier of a Harbor task: sends the agent's files to `rtl-grader serve-grader` and writes the reward.

If there is no verdict, no reward is written, and Harbor counts an error of the trial.
"""

import json
import os
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

TASK = json.loads(Path("/tests/task.json").read_text(encoding="utf-8"))
WORKSPACE = Path("/workspace")
LOGS = Path("/logs/verifier")
MAX_CHARS = 2_000_000
"""Maximum size of an answer that the service accepts."""


def agent_files() -> dict[str, str]:
    """Return a mapping of target to text. Ignores links, binary files and files that are too long."""
    files = {}
    for path in TASK["targets"]:
        file = WORKSPACE / path
        if not file.is_symlink() and file.is_file() and file.stat().st_size <= 4 * MAX_CHARS:
            try:
                files[path] = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
    return files if sum(map(len, files.values())) <= MAX_CHARS else {}


def verdict(files: dict[str, str]) -> dict:
    """Return the service's record. Waits while the service is busy."""
    body = json.dumps({"answers": [{"id": TASK["id"], "files": files}]}).encode()
    headers = {
        "Authorization": f"Bearer {os.environ['RTL_DISTILL_GRADER_TOKEN']}",
        "Content-Type": "application/json",
    }
    request = Request(f"{os.environ['RTL_DISTILL_GRADER_URL']}/v1/grade", body, headers)
    while True:
        try:
            with urlopen(request) as reply:
                (record,) = json.load(reply)["verdicts"]
                return record
        except HTTPError as error:
            if error.code not in (429, 503):
                raise SystemExit(
                    f"the grading service answered {error}: {error.read().decode()}"
                ) from error
            time.sleep(float(error.headers["Retry-After"]))


def main() -> None:
    files = agent_files()
    passed = False
    if files:
        record = verdict(files)
        (LOGS / "verdict.json").write_text(json.dumps(record), encoding="utf-8")
        if record["graded"]["problem"] != TASK["fingerprint"]:
            raise SystemExit(
                f"the service has another {TASK['id']}: start it with the sources of the export"
            )
        if record["outcome"] == "infrastructure_error":
            raise SystemExit(f"grading failed: {'; '.join(record['reasons'])}")
        passed = record["passed"]
    (LOGS / "reward.txt").write_text(str(int(passed)), encoding="utf-8")


main()
