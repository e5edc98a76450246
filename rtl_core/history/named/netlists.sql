-- Size and longest path of audited passes, relative to the golden answer or to the median pass, by step and evaluation.
SELECT v.purpose, v.step, v.evaluation, count(*) AS passes, median(a.cells) AS cells, median(a.flip_flops) AS flip_flops, median(a.levels) AS levels,
       quantile_cont(a.relative_area, 0.25) AS area_25, median(a.relative_area) AS area_50, quantile_cont(a.relative_area, 0.75) AS area_75,
       median(a.relative_levels) AS levels_50
FROM audits a JOIN verdicts v USING (rollout)
WHERE a.run = $run AND a.relative_area IS NOT NULL GROUP BY ALL ORDER BY v.purpose, v.step, v.evaluation
