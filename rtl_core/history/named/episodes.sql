-- Episodes, one per row: turns, calls, tokens that the model wrote, seconds of the model and of programs, how it ended, and the outcome.
SELECT rollout, turns, calls, failed_calls, tokens, model_s, sandbox_s, ended, outcome
FROM episodes WHERE run = $run ORDER BY evaluation, step, problem_id, sample
