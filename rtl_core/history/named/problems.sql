-- Every training problem's record: answers, passes, usual outcome.
SELECT problem_id, difficulty, family, category, rollouts, passed, pass_rate, usual_outcome, first_step, last_step
FROM problem_record WHERE run = $run ORDER BY pass_rate, problem_id
