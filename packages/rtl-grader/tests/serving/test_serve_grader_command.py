"""The command `rtl-grader serve-grader`, as another program uses it."""

import json
import signal
import subprocess
import sys

import httpx


def test_the_service_of_the_package_grades_and_stops_on_sigterm(cvdp, examples, tmp_path):
    (problems,) = cvdp.glob("*v1.1.0_example_nonagentic_code_generation_no_commercial*")
    output = tmp_path / "verdicts.jsonl"
    command = [sys.executable, "-m", "rtl_grader.cli", "serve-grader", "--source"]
    command += [f"cvdp={problems}", "--output", str(output), "--jobs", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            lines = [service.stdout.readline() for _ in range(2)]
            address, token = (line.strip().partition("=")[2] for line in lines)
            lfsr = examples["cvdp_copilot_lfsr_0001"]
            answer = {"id": lfsr.id, "response": "I do not know."}
            client = httpx.Client(
                base_url=address, headers={"Authorization": f"Bearer {token}"}, timeout=300
            )
            with client:
                about = client.get("/openapi.json").json()["info"]
                response = client.post("/v1/grade", json={"answers": [answer]})
        finally:
            service.send_signal(signal.SIGTERM)
    assert about["title"] == "rtl-grader"
    (verdict,) = response.json()["verdicts"]
    assert verdict["outcome"] == "no_answer"
    assert json.loads(output.read_text())["outcome"] == "no_answer"
    assert service.returncode in (-15, 143)
