-- Kinds of failure of training answers by epoch: answers of each kind, how many of them are to problems that another answer of the run solved, and an example.
SELECT f.epoch + 1 AS epoch, f.level, count(*) AS answers, count(*) / any_value(g.answers) AS per_answer, count(DISTINCT f.problem_id) AS problems,
       count(*) FILTER (WHERE f.solvable) AS solvable, arg_max(f.rollout, f.step) AS example
FROM failure_levels f JOIN (
    SELECT epoch, count(*) AS answers FROM verdicts WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error' GROUP BY epoch) g USING (epoch)
WHERE f.run = $run AND f.purpose = 'train'
GROUP BY f.epoch, f.level ORDER BY f.epoch, answers DESC, f.level
