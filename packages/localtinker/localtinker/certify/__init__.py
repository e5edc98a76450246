"""Conformance tests for servers of Tinker's protocol: what a server must do so that runs can train on it.

`localtinker check-service` runs them against a URL. The tests of the embedded service run the same cases.

    test_*.py        the cases; the module's name is their group
    bench.py         the server under test, and the clients of a case
    data.py          prompts and training data of cases, and the log-probabilities in the answers
    cases.py         their marks and their registry
    examiner.py      selects cases, applies timeouts and collects results
    examination.py   the results as JSON, as lines and as a console table

Each case has its own session and costs a few hundred tokens.
"""
