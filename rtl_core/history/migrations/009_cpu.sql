-- What a grade took of CPU time, and what it was allowed where it ran out. Older verdicts do not tell: NULL says so.
ALTER TABLE verdicts ADD COLUMN cpu_s DOUBLE;
ALTER TABLE verdicts ADD COLUMN cpu_limit_s DOUBLE;
