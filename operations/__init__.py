"""Processes around the pipeline: one command starts and stops a Prefect server and a worker on this
machine, and keeps them running.

Commands call Prefect's command line and do not import Prefect; only the processes of a server do.
"""
