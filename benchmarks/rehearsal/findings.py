"""Errors in the history after a rehearsal."""

from pathlib import Path

from safetensors import safe_open

from localtinker.registry import live_checkpoints
from rtl_core.history.store import History

BROKEN = {
    "rollouts are there twice": """
        SELECT count(*) - count(DISTINCT
            (purpose, coalesce(evaluation, ''), policy, step, problem_id, sample)) FROM rollouts
        WHERE run = ? AND purpose != 'set_aside'""",
    "rollouts are not graded and rewarded": """
        SELECT count(*) FROM rollouts o LEFT JOIN verdicts v USING (rollout) LEFT JOIN rewards w USING (rollout)
        WHERE o.run = ? AND (v.rollout IS NULL OR w.rollout IS NULL)""",
    "planned groups were not sampled": """
        SELECT count(*) FROM step_problems p JOIN steps s USING (run, step) LEFT JOIN
        (SELECT DISTINCT run, step, problem_id FROM rollouts WHERE purpose IN ('train', 'warm_start')) o
        USING (run, step, problem_id)
        WHERE p.run = ? AND s.status = 'trained' AND o.problem_id IS NULL""",
    "rollouts of a step with a teacher are not scored": """
        WITH scored AS (SELECT o.step, t.rollout FROM rollouts o LEFT JOIN teacher_scores t USING (rollout)
        WHERE o.run = ? AND o.purpose = 'train') SELECT count(*) FROM scored WHERE rollout IS NULL
        AND step IN (SELECT step FROM scored WHERE rollout IS NOT NULL)""",
    "planned steps are not trained": "SELECT count(*) FROM steps WHERE run = ? AND status != 'trained'",
}
"""Description of an error -> query for how often it occurs."""


def broken(path: Path, run: str, state: Path) -> list[str]:
    """Errors in the history of a run that has ended, also against the weights that the service keeps in the
    folder `state`."""
    history = History(path, read_only=True)

    def count(sql: str) -> int:
        return int(next(iter(history.query(sql, [run]).to_pylist()[0].values())))

    errors = [f"{number} {what}" for what, sql in BROKEN.items() if (number := count(sql))]
    # A step without an optimizer step has no examples, because none of its groups teaches anything.
    recorded = count(
        "SELECT count(*) FROM steps WHERE run = ? AND status = 'trained' AND examples > 0"
    )
    folder = last_saved(history, run, state)
    counted = adam_steps(folder) if folder else 0
    if counted != recorded or not recorded:
        errors.append(f"Adam has counted {counted} steps, the history has {recorded}")
    return errors


def last_saved(history: History, run: str, state: Path) -> Path | None:
    """The folder with adapter and optimizer of a run's last step, as the embedded service keeps them in the
    folder `state`."""
    trained = history.trained_steps(run)
    if not (trained and trained[-1].state_path):
        return None
    checkpoint = live_checkpoints(state).get(trained[-1].state_path)
    return checkpoint.folder(state) if checkpoint else None


def adam_steps(folder: Path) -> int:
    """Number of steps that Adam has counted in a saved state."""
    with safe_open(folder / "optimizer.safetensors", "pt") as file:
        names = [name for name in file.keys() if name.endswith(".step")]  # noqa: SIM118
        return int(max(file.get_tensor(name).item() for name in names))
