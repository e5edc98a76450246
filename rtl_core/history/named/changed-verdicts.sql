-- Regraded rollouts whose outcome differs from the one in training.
SELECT label, rollout, was, now, was_executor, now_executor FROM changed_verdicts WHERE run = $run ORDER BY label, rollout
