#!/usr/bin/env bash
# Create or update .venv with the locked dependencies and this project. Does nothing if nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=.venv/.installed
want=$(cat requirements.lock pyproject.toml packages/*/pyproject.toml | sha256sum | cut -d' ' -f1)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0

source scripts/find-python.sh
echo "installing Python packages into .venv (a minute or two; several on a slow network)"
[ -x .venv/bin/python ] || "$python" -m venv .venv
# pip names each package as it collects it; the last line stays until all are installed.
packages=$(grep -c == requirements.lock)
.venv/bin/python -m pip install --disable-pip-version-check --progress-bar off -r requirements.lock | awk -v all="$packages" '
    /^Collecting/ { if (++n % 10 == 0) { print "  collected " n " of " all " packages"; fflush() } }
    /^Installing/ { print "  installing them"; fflush() }'
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
    --editable packages/rtl-grader --editable packages/localtinker --editable .
# Compile the modules that the grader and the service start often.
.venv/bin/python -m compileall -q .venv/lib/python3*/site-packages/{cocotb,cocotb_tools,_pytest,pytest} || true
echo "$want" >"$stamp"
echo "installed; next: .venv/bin/rtl-distill train demo-small"
