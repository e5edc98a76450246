# Sourced by the other scripts: sets `python` to the first Python 3.11 or 3.12 on this machine, or to nothing.
python=
for candidate in python3.11 python3.12 python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
