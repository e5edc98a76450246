-- More of the conditions under which an evaluation was sampled, and which problems its figures leave out.
ALTER TABLE evaluations ADD COLUMN top_p DOUBLE;
ALTER TABLE evaluations ADD COLUMN max_tokens INTEGER;
ALTER TABLE evaluations ADD COLUMN left_out JSON;
