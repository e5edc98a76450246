-- Share of training answers that passed each stage of grading, by epoch.
SELECT epoch + 1 AS epoch, stage, rollouts, reached, passed, passed_share FROM stage_funnel WHERE run = $run ORDER BY epoch, position
