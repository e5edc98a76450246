#!/usr/bin/env bash
# Install tinker-cookbook and its imports into build/cookbook. Does nothing if nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=build/cookbook/.installed
want=$(sha256sum <requirements-cookbook.txt)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0
rm -rf build/cookbook
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target build/cookbook -r requirements-cookbook.txt
echo "$want" >"$stamp"
