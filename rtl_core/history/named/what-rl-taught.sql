-- What RL taught: held-out answers of the student before and after it, by level and by cause of the gain in pass@1, in points, with 95 % intervals.
-- $source = : only problems of this source
-- Before: the evaluation after the warm start, or else before training; after: the last one; both with the run's own settings, paired by problem.
-- pass@1 of a problem is c i r: the share of answers that compile, of those the share with the right interface, of these the share that passes. Its
-- change is divided among the factors: each gets its own change times the other two, averaged over all orders of changing them (Shapley 1953),
-- so that the parts add up to the gain. A factor that no answer of one evaluation shows (none compiles) counts as that of the other, which
-- credits the earlier factor. The second row is the sum of the two below it: what answers that compile gained. Intervals: percentiles over 2,000 samples of the problems, drawn by a hash.
-- A single problem has no interval. `share` is the part of a cause in the gain, given only if the interval of the gain is above 0.
WITH settings AS (
    SELECT coalesce(CAST(config ->> '$.learning.warm_start_steps' AS INTEGER), 0) AS warm, CAST(config ->> '$.evaluation.samples' AS INTEGER) AS samples,
           coalesce(list_filter(config ->> '$.problems.sources[*].heldout_split', lambda s: s IS NOT NULL)[1], 'heldout') AS split
    FROM runs WHERE run = $run),
own AS (
    SELECT e.evaluation, e.step, e.samples, s.warm FROM evaluations e, settings s
    WHERE e.run = $run AND e.policy = 'student' AND e.status = 'done' AND e.split = s.split AND e.samples = coalesce(s.samples, e.samples)
      AND template IS NULL AND temperature IS NULL AND top_p IS NULL
      AND max_tokens IS NULL AND turns IS NULL),
ends AS (
    SELECT max(step) AS last, max(step) FILTER (WHERE step IN (0, warm) AND step < (SELECT max(step) FROM own)) AS first
    FROM own HAVING max(step) > any_value(warm)),
chosen AS (SELECT own.evaluation, own.samples, own.step = ends.last AS later FROM own JOIN ends ON own.step IN (ends.first, ends.last) WHERE first IS NOT NULL),
answers AS (
    SELECT v.problem_id, c.later, v.outcome = 'passed' AS passed, passed OR v.syntax_ok AS compiles, passed OR v.syntax_ok AND v.interface_ok AS fits,
           CASE WHEN v.outcome = 'passed' THEN 'passed' ELSE l.level END AS level, c.samples
    FROM verdicts v JOIN chosen c USING (evaluation) JOIN run_problems p ON p.run = v.run AND p.problem_id = v.problem_id
    LEFT JOIN (SELECT rollout, level FROM failure_levels WHERE run = $run AND purpose = 'evaluation') l USING (rollout)
    WHERE v.run = $run AND v.outcome NOT IN ('infrastructure_error', 'not_tested') AND $source IN ('', p.source)),
whole AS (
    SELECT problem_id, later, count(*) AS n, count(*) FILTER (WHERE compiles) AS compiled, count(*) FILTER (WHERE fits) AS fitting,
           count(*) FILTER (WHERE passed) AS passed
    FROM answers GROUP BY ALL HAVING count(*) = any_value(samples)),
factors AS (
    SELECT problem_id, a.n AS n0, a.compiled AS compiled0, a.fitting AS fitting0, a.passed AS passed0,
           b.n AS n1, b.compiled AS compiled1, b.fitting AS fitting1, b.passed AS passed1, a.compiled / a.n AS c0, b.compiled / b.n AS c1,
           coalesce(a.fitting / nullif(a.compiled, 0), b.fitting / nullif(b.compiled, 0), 0) AS i0,
           coalesce(b.fitting / nullif(b.compiled, 0), a.fitting / nullif(a.compiled, 0), 0) AS i1,
           coalesce(a.passed / nullif(a.fitting, 0), b.passed / nullif(b.fitting, 0), 0) AS r0,
           coalesce(b.passed / nullif(b.fitting, 0), a.passed / nullif(a.fitting, 0), 0) AS r1
    FROM whole a JOIN whole b USING (problem_id) WHERE NOT a.later AND b.later),
shapley AS (
    SELECT *, (c1 - c0) * ((i0 * r0 + i1 * r1) / 3 + (i0 * r1 + i1 * r0) / 6) AS of_compiling,
           (i1 - i0) * ((c0 * r0 + c1 * r1) / 3 + (c0 * r1 + c1 * r0) / 6) AS of_interface,
           (r1 - r0) * ((c0 * i0 + c1 * i1) / 3 + (c0 * i1 + c1 * i0) / 6) AS of_rightness
    FROM factors),
causes AS (
    SELECT problem_id, 'compiles' AS part, compiled0 AS was, n0 AS was_of, compiled1 AS became, n1 AS became_of, of_compiling AS points FROM shapley UNION ALL
    SELECT problem_id, 'passes, if it compiles', passed0, compiled0, passed1, compiled1, of_interface + of_rightness FROM shapley UNION ALL
    SELECT problem_id, '… right interface', fitting0, compiled0, fitting1, compiled1, of_interface FROM shapley UNION ALL
    SELECT problem_id, '… right behaviour', passed0, fitting0, passed1, fitting1, of_rightness FROM shapley UNION ALL
    SELECT problem_id, 'pass@1', passed0, n0, passed1, n1, passed1 / n1 - passed0 / n0 FROM shapley),
levels AS (
    SELECT f.problem_id, l.level AS part, count(*) FILTER (WHERE NOT later AND a.level = l.level) AS was, count(*) FILTER (WHERE NOT later) AS was_of,
           count(*) FILTER (WHERE later AND a.level = l.level) AS became, count(*) FILTER (WHERE later) AS became_of,
           became / became_of - was / was_of AS points
    FROM factors f JOIN answers a USING (problem_id), (SELECT DISTINCT level FROM answers) l GROUP BY f.problem_id, l.level),
parts AS (SELECT 'cause' AS kind, * FROM causes UNION ALL SELECT 'level', * FROM levels),
places AS (SELECT problem_id, row_number() OVER (ORDER BY problem_id) - 1 AS place, count(*) OVER () AS problems FROM factors),
draws AS (SELECT d.range AS draw, CAST(hash(d.range * 1000003 + place) % problems AS BIGINT) AS place FROM range(2000) d, places WHERE problems > 1),
drawn AS (
    SELECT draw, kind, part, avg(points) AS points FROM draws JOIN places USING (place) JOIN parts USING (problem_id) GROUP BY ALL),
gains AS (SELECT draw, points AS gain FROM drawn WHERE part = 'pass@1'),
intervals AS (
    SELECT kind, part, quantile_cont(points, [0.025, 0.975]) AS ends, quantile_cont(points / nullif(gain, 0), [0.025, 0.975]) AS shares
    FROM drawn JOIN gains USING (draw) GROUP BY kind, part),
total AS (SELECT avg(points) AS gain, (SELECT ends[1] > 0 FROM intervals WHERE part = 'pass@1') AS sure FROM causes WHERE part = 'pass@1')
SELECT kind, part, sum(was) / nullif(sum(was_of), 0) AS before, sum(became) / nullif(sum(became_of), 0) AS after, 100 * avg(points) AS points, 100 * any_value(ends[1]) AS lo, 100 * any_value(ends[2]) AS hi,
       CASE WHEN kind = 'cause' AND any_value(sure) THEN avg(points) / any_value(gain) END AS share,
       CASE WHEN kind = 'cause' AND any_value(sure) THEN any_value(shares[1]) END AS share_lo,
       CASE WHEN kind = 'cause' AND any_value(sure) THEN any_value(shares[2]) END AS share_hi, count(*) AS problems
FROM parts LEFT JOIN intervals USING (kind, part), total GROUP BY kind, part
ORDER BY kind, list_position(['compiles', 'passes, if it compiles', '… right interface', '… right behaviour', 'pass@1'], part), before DESC, part
