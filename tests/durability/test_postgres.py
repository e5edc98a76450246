"""Prefect's server on a real Postgres that crashes in the middle of a run."""

import pytest

from tests.durability.conftest import deployment
from tests.durability.postgres import Postgres

pytestmark = pytest.mark.slow


def test_a_run_completes_although_the_servers_postgres_crashes(tmp_path_factory):
    home = tmp_path_factory.mktemp("postgres")
    with Postgres() as database, deployment(home, database.url) as deployed:
        flow_run = deployed.trigger("relational")
        deployed.wait_trained("relational", 1)
        database.crash()
        assert deployed.wait_state(flow_run, "Completed", "Failed", "Crashed") == "Completed"
        assert deployed.rows("SELECT count(*) AS n FROM steps WHERE status = 'trained'") == [
            {"n": 4}
        ]
        assert (
            database.query(f"SELECT state_name FROM flow_run WHERE id = '{flow_run}'")
            == "Completed"
        )
        assert not list((home / "deployment/prefect").glob("prefect.db*"))
