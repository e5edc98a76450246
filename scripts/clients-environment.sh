#!/usr/bin/env bash
# Install the clients of exported environments into build/clients. It also sees the packages of .venv; its own versions take precedence.
# Does nothing if nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=build/clients/.installed
want=$(cat requirements-clients.txt requirements.lock | sha256sum)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0
rm -rf build/clients
.venv/bin/python -m venv build/clients
site=$(build/clients/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# The sandbox binds the real path of the packages.
.venv/bin/python -c 'import os, sysconfig; print(os.path.realpath(sysconfig.get_path("purelib")))' >"$site/zz-rtl-distill.pth"
build/clients/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-clients.txt
echo "$want" >"$stamp"
