"""Compare two runs of the same seeds: every fact in their histories, and the last weights to the bit."""

import hashlib
from collections import Counter
from pathlib import Path

from benchmarks.rehearsal.findings import last_saved
from rtl_core.history.store import History

# What both runs must agree on: name -> query for the rows, with the run's name removed from the keys.
FACTS = {
    "rollouts": """SELECT replace(rollout, run || '/', '') AS key, purpose, epoch, step, problem_id, sample, policy_step, stop_reason,
        text, tokens_T, logprobs_T FROM rollouts JOIN tokens USING (rollout)""",
    "verdicts": """SELECT replace(rollout, run || '/', '') AS key, outcome, tests_passed, tests_total, reasons, executor, tools, seed
        FROM verdicts""",
    "stages": "SELECT replace(rollout, run || '/', '') AS key, position, stage, status, reasons FROM verdict_stages",
    "rewards": "SELECT replace(rollout, run || '/', '') AS key, total FROM rewards",
    "teacher": """SELECT replace(s.rollout, run || '/', '') AS key, k1_mean, k2_mean, k3_mean, n_tokens, logprobs_T
        FROM teacher_scores s JOIN teacher_tokens USING (rollout)""",
    "advantages": "SELECT replace(rollout, run || '/', '') AS key, advantage, reward, counts FROM advantages",
    "steps": "SELECT CAST(step AS VARCHAR) AS key, epoch, status FROM steps",
    "plan": "SELECT step || '/' || position AS key, problem_id FROM step_problems",
    "evaluations": """SELECT replace(evaluation, run || '/', '') AS key, status, n_problems, samples, pass_at_1, lo, hi, pass_at_k
        FROM evaluations""",
}


def differences(histories: dict[str, History], home: Path) -> list[str]:
    """The differences of the second run from the first, in words."""
    found = []
    one, other = histories
    for fact, sql in FACTS.items():
        query = f"SELECT * FROM ({sql} WHERE run = ?) ORDER BY ALL"
        left, right = (history.query(query, [run]).to_pylist() for run, history in histories.items())
        for run, rows in ((one, left), (other, right)):
            # A stage's key includes its position.
            keys = Counter((row["key"], row.get("position")) for row in rows)
            if repeated := [key for key, n in keys.items() if n > 1]:
                found.append(f"{fact}: {run} holds {len(repeated)} keys more than once, such as {repeated[0]}")
        missing = {row["key"] for row in left} ^ {row["key"] for row in right}
        if missing:
            found.append(f"{fact}: {len(missing)} keys are in one run only, such as {min(missing)}")
        elif left != right:
            bad = next(a["key"] for a, b in zip(left, right, strict=True) if a != b)
            n = sum(a != b for a, b in zip(left, right, strict=True))
            found.append(f"{fact}: {n} of {len(left)} rows differ, such as {bad}")
        print(f"  {fact:12} {len(left):6} rows", "equal" if left == right else "DIFFERENT", flush=True)
    weights = [final_weights(history, home, run) for run, history in histories.items()]
    for name in weights[0]:
        same = weights[0][name] == weights[1].get(name)
        print(f"  {name}: {weights[0][name][:16]}", "equal" if same else f"DIFFERENT {weights[1].get(name, '')[:16]}")
        if not same:
            found.append(f"{name} of the last step differs")
    return found


def final_weights(history: History, home: Path, run: str) -> dict[str, str]:
    """File name -> SHA-256 of the last step's adapter and optimizer."""
    saved = last_saved(history, run, home / "runs" / run / "tinker")
    assert saved is not None, f"{run} has no saved state"
    files = sorted(saved.glob("*.safetensors"))
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
