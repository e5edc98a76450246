-- Pass rate and reward of each RL step, raw and at equal difficulty (docs/learning.md): the raw values may fall because problems get harder.
SELECT step, any_value(value) FILTER (WHERE name = 'env/all/tests_passed') AS pass_rate_raw,
       any_value(value) FILTER (WHERE name = 'env/all/tests_passed_equal_difficulty') AS pass_rate_equal_difficulty,
       any_value(value) FILTER (WHERE name = 'env/all/reward/total') AS reward_raw,
       any_value(value) FILTER (WHERE name = 'env/all/reward/total_equal_difficulty') AS reward_equal_difficulty
FROM step_metrics WHERE run = $run GROUP BY step HAVING pass_rate_raw IS NOT NULL ORDER BY step
