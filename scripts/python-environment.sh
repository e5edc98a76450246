#!/usr/bin/env bash
# Create .venv with the locked dependencies and this project, or bring it up to date; does nothing when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/.installed
want=$(cat requirements.lock pyproject.toml | sha256sum | cut -d' ' -f1)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0

source scripts/find-python.sh
echo "installing Python packages into .venv (a minute or two)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
# Bytecode of what the grader and the service start often, so that no run pays for it.
.venv/bin/python -m compileall -q .venv/lib/python3*/site-packages/{cocotb,cocotb_tools,_pytest,pytest} || true
echo "$want" >"$stamp"
