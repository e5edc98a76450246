-- Mean KL (k1) by token position of the answer (of an episode, tokens that the model sampled), over at most $most rollouts of a span of steps.
-- $from = 0: first step
-- $to = 1000000: last step
-- $most = 500: rollouts to look at
WITH chosen AS (
    SELECT rollout FROM teacher_scores
    WHERE run = $run AND purpose = 'train' AND step BETWEEN $from AND $to
    ORDER BY hash(rollout) LIMIT $most),
tokens_of AS (
    SELECT unnest(s.logprobs_T) - unnest(t.logprobs_T) AS k1, generate_subscripts(s.logprobs_T, 1) AS position,
           unnest(coalesce(s.own_T, list_transform(s.tokens_T, lambda token: true))) AS own
    FROM chosen JOIN tokens s USING (rollout) JOIN teacher_tokens t USING (rollout))
SELECT position, avg(k1) AS k1, count(*) AS tokens FROM tokens_of WHERE own GROUP BY position ORDER BY position
