-- All runs with their state, newest first, and last those that only validated problems; `silent`: running, but without a heartbeat for five minutes.
SELECT run, CASE WHEN status = 'running' AND heartbeat_at < now() AT TIME ZONE 'UTC' - INTERVAL 5 MINUTE THEN 'silent' ELSE status END AS status,
       created_at, finished_at, student, teacher,
       (SELECT count(*) FROM steps s WHERE s.run = r.run AND s.status = 'trained') AS trained_steps,
       (SELECT count(*) FROM steps s WHERE s.run = r.run) AS planned_steps, message
FROM runs r ORDER BY ends_with(run, '.validation'), created_at DESC
