"""What a server must do that runs of this product train on: pytest cases asked of any server that speaks Tinker's protocol.

`rtl-distill check-service` runs them against a URL, and the tests of the embedded service run the same ones.

    test_*.py        the cases, by group: the module's name is the group's
    bench.py         the server under examination, and what cases do with it
    plugin.py        the pytest plugin that chooses cases, limits their time and reads what came of them
    examination.py   what an examination found: as JSON, and as lines and a table on a console

A case has a session of its own. It costs some hundred tokens.
"""
