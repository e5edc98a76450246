#!/usr/bin/env bash
# Builds the simulation image `rtl-distill-sim` (or the name given). From a registry's debian:trixie-slim where one is reached,
# else from a base made by debootstrap. Needs a running engine; debootstrap needs root.
#
#   deployments/sim/build.sh [IMAGE]
set -euo pipefail
cd "$(dirname "$0")"
image="${1:-rtl-distill-sim}"
base=debian:trixie-slim

docker info >/dev/null 2>&1 || { echo "error: no Docker engine answers; start one (dockerd) or set DOCKER_HOST" >&2; exit 2; }
if ! docker image inspect "$base" >/dev/null 2>&1 && ! timeout 60 docker pull -q "$base" >/dev/null 2>&1; then
    command -v debootstrap >/dev/null || { echo "error: no registry is reached and debootstrap is missing: apt-get install debootstrap" >&2; exit 2; }
    base=rtl-distill-base:trixie
    if ! docker image inspect "$base" >/dev/null 2>&1; then
        root="$(mktemp -d)"
        trap 'rm -rf "$root"' EXIT
        debootstrap --variant=minbase --include=ca-certificates trixie "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
        # Certificates that this machine trusts besides Debian's: a proxy's, for pip.
        if [ -d /usr/local/share/ca-certificates ]; then
            cp -r /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
            chroot "$root" update-ca-certificates >/dev/null 2>&1 || true
        fi
        tar -C "$root" -c . | docker import - "$base" >/dev/null
    fi
fi
DOCKER_BUILDKIT=0 docker build --network host --build-arg "BASE=$base" -t "$image" .
docker image inspect --format '{{.Id}}' "$image"
