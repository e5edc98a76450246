-- Outcomes of training rollouts by epoch.
SELECT epoch, outcome, sum(rollouts) AS rollouts, sum(rollouts) / sum(sum(rollouts)) OVER (PARTITION BY epoch) AS share
FROM outcomes_by_step WHERE run = $run GROUP BY epoch, outcome ORDER BY epoch, rollouts DESC
