-- Rollouts whose grading failed for reasons that are not the model's, with the reasons.
SELECT rollout, reasons, executor, wall_s FROM verdicts WHERE run = $run AND outcome = 'infrastructure_error' ORDER BY rollout
