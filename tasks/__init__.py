"""Prefect tasks: a name, retries and one call into `rtl_core` each. Tasks take names and ids, never objects or arrays."""
