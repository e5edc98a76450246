"""Prefect's part of a run: tasks (a name, retries and one function of `rtl_core` each), logs, artifacts,
and a Dask cluster."""
