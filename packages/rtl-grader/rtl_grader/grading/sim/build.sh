#!/usr/bin/env bash
# Builds the simulation image `rtl-distill-sim` (or the name given) and prints its digest. From a registry's
# debian:trixie-slim where one is reached, else by debootstrap (root.sh). Needs a running engine; debootstrap needs root.
# An image that was made from the same files is left as it is.
#
#   packages/rtl-grader/rtl_grader/grading/sim/build.sh [IMAGE]
set -euo pipefail
cd "$(dirname "$0")"
image="${1:-rtl-distill-sim}"
base=debian:trixie-slim
label=rtl-distill.source

docker info >/dev/null 2>&1 || { echo "error: no Docker engine answers; start one (dockerd) or set DOCKER_HOST" >&2; exit 2; }
source="$(cat install.sh packages.txt tools.txt requirements.txt requirements-cocotb1.txt | sha256sum | cut -c1-16)"
if [ "$(docker image inspect --format "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null)" = "$source" ]; then
    echo "the image $image is up to date" >&2
elif { docker image inspect "$base" >/dev/null 2>&1 || timeout 60 docker pull -q "$base" >/dev/null 2>&1; } &&
    DOCKER_BUILDKIT=0 docker build --network host --build-arg "BASE=$base" --build-arg "SOURCE=$source" -t "$image" . >&2; then
    echo "built $image from $base" >&2
else
    # A registry, or what a build inside a container needs of the network, is not reached; apt and pip of this machine may be.
    echo "building $image with debootstrap" >&2
    root="$(mktemp -d)"
    trap 'rm -rf --one-file-system "$root"' EXIT
    ./root.sh "$root"
    tar -C "$root" -c . | docker import --change "ENV PATH=/opt/sim/bin:/usr/local/bin:/usr/bin:/bin" \
        --change "ENV LANG=C.UTF-8" --change "LABEL $label=$source" - "$image" >/dev/null
fi
docker image inspect --format '{{.Id}}' "$image"
