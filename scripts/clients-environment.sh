#!/usr/bin/env bash
# Make build/clients: the clients of exported environments, beside the packages of .venv, where versions of their own win; does nothing
# when nothing changed.
set -euo pipefail
cd "$(dirname "$0")/.."
stamp=build/clients/.installed
want=$(cat requirements-clients.txt requirements.lock | sha256sum)
[ "$(cat "$stamp" 2>/dev/null)" = "$want" ] && exit 0
rm -rf build/clients
.venv/bin/python -m venv build/clients
site=$(build/clients/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# The sandbox binds the packages where they really lie.
.venv/bin/python -c 'import os, sysconfig; print(os.path.realpath(sysconfig.get_path("purelib")))' >"$site/zz-rtl-distill.pth"
build/clients/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-clients.txt
echo "$want" >"$stamp"
