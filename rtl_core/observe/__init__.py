"""How a run goes, for those who watch it: progress, wall time by stage, what it has used, the report under way, metrics for others."""
