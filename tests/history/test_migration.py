"""An older history comes forward with nothing lost, or stays as it was."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest
import synthetic

from rtl_core.errors import HistoryError
from rtl_core.history import connection, schema
from rtl_core.history.named_queries import named_queries
from rtl_core.history.records import RunRecord
from rtl_core.history.snapshot import take_snapshot
from rtl_core.history.store import History

V1 = (Path(__file__).parent / "schema_v1.sql").read_text(encoding="utf-8")
COLUMNS = (
    "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE NOT internal AND table_name IN"
    " (SELECT table_name FROM duckdb_tables()) ORDER BY ALL"
)
KEYS = "SELECT table_name, constraint_type, constraint_column_names FROM duckdb_constraints() WHERE constraint_type = 'PRIMARY KEY' ORDER BY ALL"
VALUES = {
    "VARCHAR": "'v{i}'", "INTEGER": "{i}", "BIGINT": "{i}", "DOUBLE": "{i}.5", "BOOLEAN": "{i} = 1", "JSON": "'{{\"v\": {i}}}'",
    "TIMESTAMP": "TIMESTAMP '2026-01-0{i} 00:00:00'", "INTEGER[]": "[{i}, 2]", "FLOAT[]": "[{i}.5, NULL]", "VARCHAR[]": "['v{i}']",
}  # fmt: skip


def write_v1(path: Path) -> dict[str, list[tuple]]:
    """A file as version 1 wrote it, with two rows in every table; returns the rows."""
    with duckdb.connect(str(path)) as con:
        con.execute(V1)
        con.execute("INSERT INTO schema_version VALUES (1, '2026-01-01', '0.1.0', '')")
        tables = [t for (t,) in con.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()]
        for table in tables:
            if table != "schema_version":
                columns = con.execute(
                    f"SELECT data_type FROM duckdb_columns() WHERE table_name = '{table}' ORDER BY column_index"
                ).fetchall()
                for i in (1, 2):
                    con.execute(
                        f"INSERT INTO {table} VALUES ({', '.join(VALUES[kind].format(i=i) for (kind,) in columns)})"
                    )
        return {table: rows_of(con, table) for table in tables}


def rows_of(con: duckdb.DuckDBPyConnection, table: str, columns: str = "*") -> list[tuple]:
    return con.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def test_version_1_and_the_shipped_migrations_make_the_current_schema(tmp_path):
    """Whoever edits schema.sql and forgets the migration meets this test."""
    write_v1(tmp_path / "old.duckdb")
    History(tmp_path / "old.duckdb").heartbeat("r")
    History(tmp_path / "new.duckdb").heartbeat("r")
    with duckdb.connect(str(tmp_path / "old.duckdb")) as old, duckdb.connect(str(tmp_path / "new.duckdb")) as new:
        assert old.execute(COLUMNS).fetchall() == new.execute(COLUMNS).fetchall()
        assert old.execute(KEYS).fetchall() == new.execute(KEYS).fetchall()
        views = "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY 1"
        assert old.execute(views).fetchall() == new.execute(views).fetchall()
        assert (
            schema.state_of(old, "old")
            == schema.state_of(new, "new")
            == (schema.current_version(), schema.views_hash())
        )


@pytest.mark.parametrize("run", ["v1", "none"])
def test_every_named_query_answers_on_a_migrated_history_and_on_a_run_without_rollouts(tmp_path, run):
    write_v1(tmp_path / "h.duckdb")
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        con.execute("UPDATE verdicts SET purpose = 'train'; UPDATE reward_terms SET purpose = 'train'")
    history = History(tmp_path / "h.duckdb")
    history.heartbeat(run)
    for query in named_queries().values():
        rows = history.query(query.sql, query.bind({}, run) or None).to_pylist()
        assert rows or query.name != "counterfactual" or run == "none"


def test_nothing_of_version_1_is_lost(tmp_path):
    before = write_v1(tmp_path / "h.duckdb")
    History(tmp_path / "h.duckdb").start_run(RunRecord(name="after"))
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        for table, rows in before.items():
            now = rows_of(con, table, "version, applied_at, written_by" if table == "schema_version" else "*")
            rows = [row[:3] for row in rows] if table == "schema_version" else rows
            assert all(any(row == found[: len(row)] for found in now) for row in rows), table


SHIPPED = dict(schema.migrations())
NOW = schema.current_version()
STEPS = {
    **SHIPPED,
    NOW + 1: "ALTER TABLE runs ADD COLUMN note VARCHAR DEFAULT 'none'; CREATE TABLE extra (x INTEGER PRIMARY KEY);",
    NOW + 2: "UPDATE runs SET note = upper(run); INSERT INTO extra VALUES (7);",
}


@pytest.fixture
def newer(monkeypatch) -> None:
    """A later release: two migrations more than today's."""
    monkeypatch.setattr(schema, "migrations", lambda: STEPS)


def test_a_writer_brings_an_old_file_forward_step_by_step(tmp_path, monkeypatch):
    history = synthetic.write_run(tmp_path / "h.duckdb", shape=synthetic.Shape(steps=2, train=6, heldout=3))
    stored = history.rollouts_of("demo", 1)
    monkeypatch.setattr(schema, "migrations", lambda: STEPS)
    connection.forget_checks()
    later = History(tmp_path / "h.duckdb")
    assert later.query("SELECT note, x FROM runs, extra").to_pylist() == [{"note": "DEMO", "x": 7}]
    assert later.query("SELECT version FROM schema_version ORDER BY 1").column(0).to_pylist() == [NOW, NOW + 1, NOW + 2]
    assert later.rollouts_of("demo", 1) == stored
    assert later.query("SELECT count(*) AS n FROM pass_by_step").to_pylist() == [{"n": 2}]
    later.heartbeat("demo")


@pytest.mark.usefixtures("newer")
def test_a_reader_leaves_an_old_file_and_says_what_to_do(tmp_path):
    path = tmp_path / "h.duckdb"
    write_v1(path)
    before = path.read_bytes()
    with pytest.raises(HistoryError, match=f"has schema 1; this rtl-distill reads {NOW + 2}"):
        History(path, read_only=True).runs()
    copy = take_snapshot(path, tmp_path / "copy.duckdb")
    assert path.read_bytes() == before
    assert len(History(copy, read_only=True).query("SELECT note FROM runs")) == 2


def test_views_of_an_older_release_are_replaced(tmp_path):
    history = History(tmp_path / "h.duckdb")
    history.heartbeat("r")
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        con.execute("CREATE OR REPLACE VIEW pass_by_step AS SELECT 1 AS old; CREATE VIEW gone AS SELECT 2 AS old")
        con.execute("UPDATE schema_version SET views = 'other'")
    connection.forget_checks()
    History(tmp_path / "h.duckdb").heartbeat("r")
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        assert "pass_rate" in [c[0] for c in con.execute("DESCRIBE pass_by_step").fetchall()]
        assert con.execute("SELECT count(*) FROM duckdb_views() WHERE view_name = 'gone'").fetchall() == [(0,)]


def test_a_migration_that_fails_changes_nothing(tmp_path, monkeypatch):
    path = tmp_path / "h.duckdb"
    before = write_v1(path)
    monkeypatch.setattr(schema, "migrations", lambda: {**STEPS, NOW + 3: "SELECT * FROM nowhere"})
    with pytest.raises(duckdb.Error, match="nowhere"):
        History(path).runs()
    with duckdb.connect(str(path)) as con:
        assert {t: rows_of(con, t) for t in before} == before
        assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'extra'").fetchall() == [(0,)]


def test_migration_files_are_numbered_without_gaps():
    files = sorted(Path(schema.__file__).parent.glob("migrations/*.sql"))
    assert [int(file.name[:3]) for file in files] == list(range(2, 2 + len(files))) == sorted(schema.migrations())


def write_trained_v1(
    path: Path, config: str, metrics: dict[str, float], rollouts: list[tuple], keys: list[str] | None = None
) -> None:
    """A run of one trained step as version 1 wrote it.

    Each of `rollouts` is (purpose, evaluation, problem, sample, stop reason, tokens, outcome, advantage or None); prompts have 10 tokens.
    """
    with duckdb.connect(str(path)) as con:
        con.execute(V1)
        con.execute("INSERT INTO schema_version VALUES (1, '2026-01-01', '0.1.0', '')")
        con.execute(
            "INSERT INTO runs (run, status, created_at, config) VALUES ('r', 'paused', '2026-01-01', ?)", [config]
        )
        con.execute("INSERT INTO steps VALUES ('r', 0, 0, 'trained', '2026-01-01', '2026-01-01', 'st', 'sa')")
        con.execute("INSERT INTO steps VALUES ('r', 1, 0, 'planned', '2026-01-01', NULL, NULL, NULL)")
        for name, value in metrics.items():
            con.execute("INSERT INTO step_metrics VALUES ('r', 0, ?, ?)", [name, value])
        for i, (purpose, evaluation, problem, sample, stop, tokens, outcome, advantage) in enumerate(rollouts):
            key = keys[i] if keys else f"{purpose}/{evaluation}/{problem}/{sample}"
            place = [key, "r", purpose, evaluation, 0, 0, problem]
            con.execute(
                f"INSERT INTO rollouts VALUES ({', '.join('?' * 15)})",
                [*place, sample, 0, stop, "p", 10, len(tokens), "text", "2026-01-01"],
            )
            con.execute("INSERT INTO tokens VALUES (?, ?, ?)", [place[0], tokens, [-0.5] * len(tokens)])
            con.execute(
                "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, true, true, true, 0, 1, [], 'bubblewrap', '{}', 1, 0.1, false, '2026-01-01')",
                [*place, outcome],
            )
            con.execute(f"INSERT INTO rewards VALUES ({', '.join('?' * 8)})", [*place, float(outcome == "passed")])
            if advantage is not None:
                con.execute("INSERT INTO advantages VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [*place, advantage])


REWARDED = [
    ("train", None, "a", 0, "stop", [1] * 5, "passed", 0.5),
    ("train", None, "a", 1, "length", [1] * 6, "tests_failed", -0.5),
    ("train", None, "b", 0, "stop", [1] * 7, "passed", 0.0),
    ("train", None, "c", 0, "stop", [1] * 8, "passed", None),  # quarantined
    ("refinement", "step 0/turn-2", "a", 1, "stop", [1] * 9, "passed", 0.25),
    ("refinement", "r/student/00000/heldoutx4/turn-2", "x", 0, "stop", [1] * 99, "passed", None),
    ("evaluation", "r/student/00000/heldoutx4", "x", 0, "stop", [1] * 99, "tests_failed", None),
]
IMITATED = [
    ("warm_start", "r/teacher/warm start 00000", "a", 0, "stop", [1, 2, 3], "passed", None),
    ("warm_start", "r/teacher/warm start 00000", "a", 1, "stop", [1, 2, 3], "passed", None),
    ("warm_start", "r/teacher/warm start 00000", "a", 2, "stop", [1, 2, 4, 5], "tests_failed", None),
    ("warm_start", "r/teacher/warm start 00000", "a", 3, "length", [1] * 20, "passed", None),
]


@pytest.mark.parametrize(
    ("config", "metrics", "rollouts", "expected"),
    [
        # Rewards alone: answers whose advantage is not 0.
        ("{}", {"train/examples": 3, "learning/kl_weight": 0}, REWARDED, (3, 14 + 15 + 18)),
        # The KL teaches in every group; masked answers and quarantined groups are left out all the same.
        ("{}", {"train/examples": 4, "learning/kl_weight": 0.1}, REWARDED, (4, 14 + 15 + 16 + 18)),
        ('{"learning": {"truncated": "mask"}}', {"train/examples": 3, "learning/kl_weight": 0.1}, REWARDED, (3, 14 + 16 + 18)),
        ("{}", {"warm_start/examples": 1}, IMITATED, (1, 12)),
        ('{"learning": {"warm_start_passing_only": false}}', {"warm_start/examples": 2}, IMITATED, (2, 12 + 13)),
        # Known-good answers leave no rollouts.
        ("{}", {"warm_start/examples": 2}, [], (2, None)),
        ("{}", {"train/examples": 0, "learning/kl_weight": 0}, [], (0, 0)),
    ],
)  # fmt: skip
def test_what_a_step_of_version_1_trained_on_is_found_again(tmp_path, config, metrics, rollouts, expected):
    write_trained_v1(tmp_path / "h.duckdb", config, metrics, rollouts)
    history = History(tmp_path / "h.duckdb")
    history.heartbeat("r")
    trained, planned = history.steps("r")
    assert (trained.examples, trained.train_tokens) == expected
    assert (planned.examples, planned.train_tokens) == (None, None)


PLACES = [
    # purpose, evaluation, problem, sample; then policy, turn, parent (as (purpose, sample) of its row), evaluation as they are found.
    (("train", None, "a", 0), ("student", 1, None, None)),
    (("refinement", "step 0/turn-2", "a", 0), ("student", 2, "r/step/00000/a/0", None)),
    (("refinement", "step 0/turn-3", "b", 0), ("student", 3, "r/eval/step 0/turn-2/b/0", None)),
    (("evaluation", "r/student/00000/heldoutx4", "x", 0), ("student", 1, None, "r/student/00000/heldoutx4")),
    (("evaluation", "r/teacher/00000/heldoutx4", "x", 1), ("teacher", 1, None, "r/teacher/00000/heldoutx4")),
    (("refinement", "r/teacher/00000/heldoutx4/turn-2", "x", 1),
     ("teacher", 2, "r/eval/r/teacher/00000/heldoutx4/x/1", "r/teacher/00000/heldoutx4")),
    (("refinement", "r/teacher/00000/heldoutx4/turn-3", "y", 2),
     ("teacher", 3, "r/eval/r/teacher/00000/heldoutx4/turn-2/y/2", "r/teacher/00000/heldoutx4")),
    (("evaluation", "named by hand", "x", 2), ("teacher", 1, None, "named by hand")),
    (("measurement", "r/student/measurement", "a", 0), ("student", 1, None, None)),
    (("measurement", "r/teacher/measurement", "a", 1), ("teacher", 1, None, None)),
    (("warm_start", "r/teacher/warm start 00000", "a", 0), ("teacher", 1, None, None)),
]  # fmt: skip


def test_what_version_1_wrote_into_names_becomes_columns(tmp_path):
    rows = [(*place, "stop", [1], "passed", 0.5) for place, _ in PLACES]
    places = (
        (f"eval/{evaluation}" if evaluation else "step/00000", *place)
        for _, evaluation, *place in (p for p, _ in PLACES)
    )
    keys = [f"r/{name}/{problem}/{sample}" for name, problem, sample in places]
    write_trained_v1(tmp_path / "h.duckdb", "{}", {}, rows, keys)
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        con.execute("INSERT INTO prompts VALUES ('p', [1])")
        for key, split in (("named by hand", "heldout"), ("other", "heldout, table, temperature 0.2")):
            con.execute(
                "INSERT INTO evaluations (evaluation, run, policy, step, split, status, n_problems, samples, started_at)"
                " VALUES (?, 'r', 'teacher', 0, ?, 'running', 1, 1, '2026-01-01')",
                [key, split],
            )
    history = History(tmp_path / "h.duckdb")
    history.heartbeat("r")
    found = {
        row.pop("rollout"): tuple(row.values())
        for row in history.query("SELECT rollout, policy, turn, parent, evaluation FROM rollouts").to_pylist()
    }
    assert [found[key] for key in keys] == [expected for _, expected in PLACES]
    # A run goes on with the answers that it has: the same answer has the same key, and each batch finds its own.
    with history.reading():
        assert [history.rollout(key).rollout.key for key in keys] == keys
        assert [s.rollout.key for s in history.rollouts_of("r", 0, "refinement", policy="student", turn=2)] == [keys[1]]
        assert [s.rollout.key for s in history.rollouts_of("r", "r/teacher/00000/heldoutx4", "refinement", turn=3)] == [
            keys[6]
        ]
        assert [s.rollout.key for s in history.rollouts_of("r", 0, "measurement", policy="teacher")] == [keys[9]]
        assert [s.rollout.key for s in history.rollouts_of("r", 0, "warm_start", policy="teacher")] == [keys[10]]
        assert [s.rollout.key for s in history.rollouts_of("r", 0)] == [keys[0]]
    for table in ("verdicts", "advantages"):
        rows = history.query(f"SELECT rollout, evaluation FROM {table}").to_pylist()
        assert {row["rollout"]: row["evaluation"] for row in rows} == {key: found[key][-1] for key in keys}
    conditions = history.query("SELECT evaluation, split, template, temperature FROM evaluations ORDER BY evaluation")
    assert [tuple(row.values()) for row in conditions.to_pylist()] == [
        ("named by hand", "heldout", None, None),
        ("other", "heldout", "table", 0.2),
    ]


@pytest.mark.parametrize(
    ("status", "message", "ended_by"),
    [
        ("cancelled", "stopped by a signal; the same command goes on", "signal"),
        ("cancelled", "cancelled in Prefect; the same command goes on", "request"),
        ("failed", "ValueError: stopped by a signal", None),
        ("running", None, None),
    ],
)
def test_how_a_run_of_version_1_ended_is_found_in_its_message(tmp_path, status, message, ended_by):
    write_trained_v1(tmp_path / "h.duckdb", "{}", {}, [])
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        con.execute("UPDATE runs SET status = ?, message = ?", [status, message])
    history = History(tmp_path / "h.duckdb")
    history.heartbeat("r")
    assert history.query("SELECT ended_by FROM runs").to_pylist() == [{"ended_by": ended_by}]


def test_every_named_query_answers_on_a_history_of_version_1(tmp_path):
    write_trained_v1(tmp_path / "h.duckdb", "{}", {"train/examples": 3, "learning/kl_weight": 0}, REWARDED + IMITATED)
    history = History(tmp_path / "h.duckdb")
    history.heartbeat("r")
    with history.reading():
        rows = {name: len(history.query(q.sql, q.bind({}, "r") or None)) for name, q in named_queries().items()}
    assert rows["turns"] == 2
    assert rows["outcomes"] == 2


SETTINGS = (
    '{"learning": {"truncated": "TRUNCATED", "overlong_penalty": 0.4, "overlong_buffer": 10}, "sampling": {"max_tokens": 20},'
    ' "refinement": {"improvement_weight": 0.25}}'
)
ANSWERS = [  # key, purpose, evaluation, sample, stop reason, tokens, outcome, tests passed, total
    ("r/step/00000/p/0", "train", None, 0, "stop", 5, "passed", 4, 1.6),
    ("r/step/00000/p/1", "train", None, 1, "stop", 15, "tests_failed", 4, 0.6),
    ("r/step/00000/p/2", "train", None, 2, "length", 20, "rejected", 0, 0.0),
    ("r/eval/step 0/turn-2/p/1", "refinement", "step 0/turn-2", 1, "stop", 5, "tests_failed", 1, 1.0),
    ("r/eval/step 0/turn-3/p/1", "refinement", "step 0/turn-3", 1, "stop", 12, "passed", 4, 1.6),
]


@pytest.mark.parametrize(
    ("truncated", "rewards", "counts"),
    [
        ("keep", [1.6, 0.6, 0.0, 1.1, 1.75], [True] * 5),
        ("mask", [1.6, 0.6, 0.0, 1.1, 1.75], [True, True, False, True, True]),
        # Penalties: none, half, all; none, a fifth.
        ("penalise", [1.6, 0.4, -0.4, 1.1, 1.67], [True] * 5),
    ],
)
def test_what_answers_of_version_1_were_trained_on_and_their_terms_are_found_again(
    tmp_path, truncated, rewards, counts
):
    with duckdb.connect(str(tmp_path / "h.duckdb")) as con:
        con.execute(V1)
        con.execute("INSERT INTO schema_version VALUES (1, '2026-01-01', '0.1.0', '')")
        con.execute(
            "INSERT INTO runs (run, status, created_at, config) VALUES ('r', 'paused', '2026-01-01', ?)",
            [SETTINGS.replace("TRUNCATED", truncated)],
        )
        for key, purpose, evaluation, sample, stop, tokens, outcome, passed, total in ANSWERS:
            place = [key, "r", purpose, evaluation, 0, 0, "p"]
            con.execute(
                f"INSERT INTO rollouts VALUES ({', '.join('?' * 15)})",
                [*place, sample, 0, stop, "p", 10, tokens, "text", "2026-01-01"],
            )
            con.execute(
                "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, true, false, true, ?, 4, [], 'bubblewrap', '{}', 1, 0.1, false, '2026-01-01')",
                [*place, outcome, passed],
            )
            con.execute(f"INSERT INTO rewards VALUES ({', '.join('?' * 8)})", [*place, total])
            con.execute(f"INSERT INTO advantages VALUES ({', '.join('?' * 8)})", [*place, 0.5])
            con.execute(f"INSERT INTO reward_terms VALUES ({', '.join('?' * 10)})", [*place, "tests", 1.6, total / 1.6])
    history = History(tmp_path / "h.duckdb")
    history.heartbeat("r")
    found = {row["rollout"]: row for row in history.query("SELECT rollout, reward, counts FROM advantages").to_pylist()}
    assert [found[answer[0]]["reward"] for answer in ANSWERS] == pytest.approx(rewards)
    assert [found[answer[0]]["counts"] for answer in ANSWERS] == counts
    terms = "SELECT term, value FROM term_values WHERE rollout = ? AND term <> 'tests' ORDER BY term"
    valued = [[row["value"] for row in history.query(terms, [ANSWERS[i][0]]).to_pylist()] for i in (0, 1, 2)]
    assert valued == [[1, 0, 1, 1], [1, 0, 1, 0.75], [0, 0, 0, 0]]  # format, interface, syntax, tests_fraction
    assert history.query("SELECT count(*) AS n, sum(weight) AS w FROM reward_terms").to_pylist() == [
        {"n": 25, "w": 8.0}
    ]
