-- What kind of failing, by epoch: answers of each level, how many of them another answer of the run solved, and one to look at.
SELECT f.epoch, f.level, count(*) AS answers, count(*) / any_value(g.answers) AS per_answer, count(DISTINCT f.problem_id) AS problems,
       count(*) FILTER (WHERE f.solvable) AS solvable, arg_max(f.rollout, f.step) AS example
FROM failure_levels f JOIN (
    SELECT epoch, count(*) AS answers FROM verdicts WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error' GROUP BY epoch) g USING (epoch)
WHERE f.run = $run AND f.purpose = 'train'
GROUP BY f.epoch, f.level ORDER BY f.epoch, answers DESC, f.level
