"""kill -9 in the middle of an epoch, then the same command: the run resumes with the result of an undisturbed run."""

import os
import signal
import subprocess

import pytest

from rtl_core.history.store import History
from tests.command import command
from tests.waiting import wait_for

LAST = (
    "SELECT count(*) AS n FROM rollouts WHERE run = 'killed' AND purpose = 'train' AND step = 3"
)


@pytest.mark.slow
def test_after_kill_9_the_same_command_ends_with_the_rollouts_and_weights_of_an_undisturbed_run(
    small_run, tmp_path
):
    fixed = (
        "tinker.local_deterministic=true",
        "evaluation.teacher=false",
        # Four steps of one epoch, so that they overlap.
        "learning.staleness=1",
        "run.epochs=1",
        "problems.sources.0.train=8",
    )
    environment = {**os.environ, "PREFECT_HOME": str(tmp_path / "prefect")}
    calm = command("train", "demo", sets=small_run("calm", *fixed))
    out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(calm, env=environment, check=True, timeout=1800, **out)
    for line in (
        *(f"step   {n}/4  reward" for n in range(1, 5)),
        "Run calm: held-out problems",
    ):
        assert done.stdout.count(line) == 1, (
            line,
            done.stdout,
        )  # although Prefect handles the same logger

    killed = command("train", "demo", sets=small_run("killed", *fixed))
    reader = History(tmp_path / "history.duckdb", read_only=True)
    process = subprocess.Popen(killed, env=environment, start_new_session=True)
    wait_for(
        lambda: reader.query(LAST).to_pylist()[0]["n"],
        "a rollout of the last step",
        while_runs=process,
    )
    process.send_signal(signal.SIGKILL)
    process.wait()
    subprocess.run(killed, env=environment, check=True, timeout=1800)

    def rollouts(run):
        sql = """
            SELECT r.purpose, r.step, r.policy_step, r.problem_id, r.sample, r.text, t.logprobs_T, v.outcome, s.k1_mean
            FROM rollouts r JOIN tokens t USING (rollout) JOIN verdicts v USING (rollout)
            LEFT JOIN teacher_scores s USING (rollout) WHERE r.run = ? ORDER BY ALL
        """
        return reader.query(sql, [run]).to_pylist()

    assert rollouts("killed") == rollouts("calm")
    behind = {
        row["step"] - row["policy_step"]
        for row in rollouts("calm")
        if row["purpose"] == "train"
    }
    assert behind == {0, 1}
    assert [s.status for s in reader.steps("killed")] == ["trained"] * 4
    # Equal weights sample equal answers: the last evaluation of both runs is of the same student.
    last = [
        e.pass_at_1
        for run in ("calm", "killed")
        for e in reader.evaluations(run)
        if e.step == 4
    ]
    assert len(last) == 2
    assert last[0] == last[1]
