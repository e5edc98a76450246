-- Training problems that were tried and never passed.
SELECT problem_id, difficulty, family, category, rollouts, usual_outcome, first_step, last_step
FROM never_solved WHERE run = $run ORDER BY rollouts DESC, problem_id
