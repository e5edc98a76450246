#!/usr/bin/env bash
# Install the pinned axe-core, which tests/view/test_accessibility.py runs in the browser, into build/axe. Does nothing if it is there.
set -euo pipefail
cd "$(dirname "$0")/.."
version=4.14.1
grep -qs "\"version\": \"$version\"" build/axe/node_modules/axe-core/package.json && exit 0
mkdir -p build/axe
npm install --silent --no-audit --no-fund --ignore-scripts --prefix build/axe "axe-core@$version"
