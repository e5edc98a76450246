#!/usr/bin/env bash
# Run a command in a checkout of HEAD on Debian 13 (Python 3.13, Icarus 12), for example: scripts/in-debian13.sh make test. Needs root, to
# create namespaces. The file system is build/debian13 (7 GB, with torch's GPU libraries); DEBIAN_MIRROR sets another mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD/build/debian13
. scripts/debian-root.sh
if [ ! -e "$root/.made" ]; then
    debian_root "$root" make,python3-venv
    touch "$root/.made"
fi
rm -rf "$root/opt/rtl-distill"
mkdir -p "$root/opt/rtl-distill" "$root/data"
git archive HEAD | tar -x -C "$root/opt/rtl-distill"
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"  # with a proxy's certificate
data=$(realpath "${RTL_DISTILL_DATA:-../shared/data}" 2>/dev/null || true)
# No chroot, because the sandbox cannot create its namespaces in one.
unshare --mount --pid --fork --kill-child bash -c '
    root=$1 data=$2; shift 2
    mount --bind "$root" "$root"
    for place in dev sys; do mount --rbind /$place "$root/$place"; done
    mount -t proc proc "$root/proc" && mount -t tmpfs tmpfs "$root/tmp"
    if [ -d "$data" ]; then mount --bind "$data" "$root/data"; fi
    mkdir -p "$root/before" && cd "$root" && pivot_root . before && umount -l /before
    cd /opt/rtl-distill
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 RTL_DISTILL_DATA=/data "$@"
' bash "$root" "$data" "$@"
