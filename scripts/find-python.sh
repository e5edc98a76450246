# Sourced by the other scripts: sets `python` to the first Python 3.11 to 3.13 on this machine, or to an empty string if there is no Python.
python=
for candidate in python3.11 python3.12 python3.13 python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ] && command -v python3 >/dev/null; then
    echo "error: Python 3.11, 3.12 or 3.13 is required, because the benchmark's cocotb 2.0.1 supports no later version; found $(python3 --version 2>&1)." >&2
    echo "  Install one, for example with uv, pyenv or conda, so that \`python3.13\` is in PATH, and run this again." >&2
    exit 1
fi
