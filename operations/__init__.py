"""Processes around the pipeline: one command starts and stops a Prefect server and a worker on this machine, and keeps them running.

This package only calls Prefect's command line and does not import Prefect.
"""
