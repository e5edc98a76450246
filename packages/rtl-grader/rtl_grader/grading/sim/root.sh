#!/usr/bin/env bash
# Makes the simulation image's files in an empty directory by debootstrap: without Docker and without a registry. As root.
#
#   packages/rtl-grader/rtl_grader/grading/sim/root.sh DIRECTORY
#
# DEBIAN_MIRROR names another mirror than debootstrap's own. Python wheels are fetched by this machine's pip, which knows
# its index and proxy; without one, pip inside the new root asks the public index.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
root="${1:?usage: root.sh DIRECTORY}"
[ "$(id -u)" -eq 0 ] || { echo "error: debootstrap needs root" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "error: debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }

mkdir -p "$root"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
quietly() {
    "$@" >"$log" 2>&1 || { tail -n 20 "$log" >&2; echo "error: failed: $1 (see above)" >&2; exit 1; }
    grep '^warning: ' "$log" >&2 || true
}
quietly debootstrap --variant=minbase --include=ca-certificates trixie "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
# Certificates that this machine trusts besides Debian's: a proxy's.
if [ -d /usr/local/share/ca-certificates ]; then
    cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
    quietly chroot "$root" update-ca-certificates
fi

mkdir "$root/install"
cp "$here"/{install.sh,packages.txt,tools.txt,requirements.txt,requirements-cocotb1.txt} "$root/install/"
python="${PYTHON:-$here/../../../../../.venv/bin/python}"
[ -x "$python" ] || python=python3
if "$python" -m pip --version >/dev/null 2>&1; then
    fetch=("$python" -m pip download -q --disable-pip-version-check --only-binary=:all: --dest "$root/install/wheels"
           --python-version 3.13 --implementation cp --abi cp313 --abi abi3 --abi none)
    for tag in manylinux_2_28 manylinux_2_17 manylinux2014; do fetch+=(--platform "${tag}_$(uname -m)"); done
    quietly "${fetch[@]}" -r "$here/requirements.txt"
    quietly "${fetch[@]}" --no-deps -r "$here/requirements-cocotb1.txt"
fi
# Mounts of its own, which end with the command however it ends.
quietly unshare --mount --pid --fork sh -c 'mount -t proc proc "$1/proc" && exec chroot "$1" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/install \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} sh /install/install.sh' sh "$root"
rm -rf "$root/install" "$root/var/log/bootstrap.log"
: >"$root/etc/resolv.conf"
rm -f "$root/etc/hostname"
