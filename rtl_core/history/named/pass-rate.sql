-- Pass rate of training rollouts by epoch and difficulty.
SELECT epoch + 1 AS epoch, difficulty, rollouts, pass_rate, tests_passed_share
FROM pass_by_epoch_difficulty WHERE run = $run
ORDER BY epoch, CASE difficulty WHEN 'easy' THEN 0 WHEN 'medium' THEN 1 ELSE 2 END
