#!/usr/bin/env bash
# Install missing Debian/Ubuntu packages, as root or with sudo; without either, print the command to run.
# usage: scripts/system-packages.sh command=package ...
set -euo pipefail
missing=()
for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null 2>&1 || missing+=("${pair#*=}")
done
source "$(dirname "$0")/find-python.sh"
again=
if [ -z "$python" ] && ! command -v python3 >/dev/null; then
    missing+=(python3 python3-venv)
    again=yes  # then check what that Python lacks
fi
if [ -n "$python" ]; then
    # Debian ships venv without ensurepip until python3-venv is installed.
    "$python" -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
    # Simulators load Python as a shared library, which Debian's own Python does not include.
    "$python" - <<'PY' || missing+=("lib$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')")
import ctypes, os, sys, sysconfig
name = "libpython%d.%d.so.1.0" % sys.version_info[:2]
places = [sysconfig.get_config_var(key) or "" for key in ("LIBDIR", "LIBPL")]
if not any(os.path.exists(os.path.join(place, name)) for place in places):
    try:
        ctypes.CDLL(name)
    except OSError:
        sys.exit(1)
PY
fi
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "error: missing programs; install these packages with your system's package manager: ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -eq 0 ]; then
    as_root=()
elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=(sudo)
else
    echo "error: system packages are missing, and there is neither root nor sudo to install them. Ask an administrator to run:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y ${missing[*]}" >&2
    exit 1
fi
echo "installing system packages (a minute): ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "error: apt-get could not install: ${missing[*]}" >&2
    exit 1
fi
[ -z "$again" ] || exec "$0" "$@"
