-- Which algorithm trained the problems of each source, by epoch: groups, how many had an advantage, mean reward and pass rate.
-- As the configuration says (`learning.algorithm`, `learning.by_source`); the steps' metrics `algorithm/NAME/answers` tell it by step.
SELECT g.epoch + 1 AS epoch, p.source,
       coalesce(CAST(r.config -> '$.learning.by_source' AS MAP(VARCHAR, VARCHAR))[p.source], r.config ->> '$.learning.algorithm') AS algorithm,
       count(*) AS groups, count(*) FILTER (WHERE g.signal) AS with_signal, CAST(sum(g.samples) AS BIGINT) AS answers,
       sum(g.reward * g.samples) / sum(g.samples) AS reward, sum(g.passed) / sum(g.samples) AS pass_rate
FROM group_record g JOIN run_problems p ON p.run = g.run AND p.problem_id = g.problem_id JOIN runs r ON r.run = g.run
WHERE g.run = $run GROUP BY ALL ORDER BY ALL
