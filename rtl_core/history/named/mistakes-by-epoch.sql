-- Mistakes of training answers by name and epoch: expected and got (the most frequent of each), answers with the mistake, and an example.
-- $limit = 12: how many of each epoch
WITH graded AS (
    SELECT epoch, count(*) AS answers FROM verdicts
    WHERE run = $run AND purpose = 'train' AND outcome <> 'infrastructure_error' GROUP BY epoch),
counted AS (
    SELECT epoch, mistake, mode(expected ORDER BY expected) AS expected, mode(got ORDER BY got) AS got, count(DISTINCT rollout) AS answers,
           count(DISTINCT problem_id) AS problems, arg_max(rollout, step) AS example
    FROM named_mistakes WHERE run = $run AND purpose = 'train' GROUP BY epoch, mistake)
SELECT c.epoch + 1 AS epoch, c.mistake, c.expected, c.got, c.answers, c.answers / g.answers AS per_answer, c.problems, c.example
FROM counted c JOIN graded g USING (epoch)
QUALIFY row_number() OVER (PARTITION BY c.epoch ORDER BY c.answers DESC, c.mistake) <= $limit
ORDER BY c.epoch, c.answers DESC, c.mistake
