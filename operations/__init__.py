"""Processes around the pipeline: a Prefect server and a worker on this machine, kept running, started and ended by one command.

Prefect is only ever called by its command line here, so that this room, as all of `rtl_core`, does not import it.
"""
