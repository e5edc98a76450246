-- Outcomes of training rollouts by epoch.
SELECT o.epoch + 1 AS epoch, outcome, sum(rollouts) AS rollouts, sum(rollouts) / sum(sum(rollouts)) OVER (PARTITION BY o.epoch) AS share
FROM outcomes_by_step o WHERE run = $run GROUP BY o.epoch, outcome ORDER BY o.epoch, rollouts DESC
