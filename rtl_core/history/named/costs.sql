-- Tokens and dollars of each training step, by model, with the share of prompt tokens that the service read from its cache.
WITH used AS (
    SELECT step, split_part(name, '/', 2) AS model,
           coalesce(sum(value) FILTER (WHERE name LIKE '%/prefill'), 0) AS prefill,
           coalesce(sum(value) FILTER (WHERE name LIKE '%/cached'), 0) AS cached,
           coalesce(sum(value) FILTER (WHERE name LIKE '%/sample'), 0) AS sample,
           coalesce(sum(value) FILTER (WHERE name LIKE '%/train'), 0) AS train
    FROM step_metrics WHERE run = $run AND name LIKE 'tokens/%' GROUP BY ALL)
SELECT u.*, cached / nullif(prefill + cached, 0) AS cached_share, c.value AS step_usd
FROM used u LEFT JOIN step_metrics c ON c.run = $run AND c.step = u.step AND c.name = 'cost/usd'
ORDER BY u.step, u.model
