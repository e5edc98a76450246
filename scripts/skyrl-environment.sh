#!/usr/bin/env bash
# Make build/skyrl: a Debian root with Python 3.13 and, in /opt/skyrl, SkyRL with JAX for the CPU (8 GB, most of it torch's GPU libraries, which
# SkyRL imports). As root; does nothing when nothing changed. DEBIAN_MIRROR sets another mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
root=build/skyrl
. scripts/debian-root.sh
want=$(cat scripts/skyrl-environment.sh scripts/debian-root.sh | sha256sum)
[ "$(cat $root/.installed 2>/dev/null)" = "$want" ] && exit 0
debian_root $root python3,python3-venv
mkdir $root/wheels
fetch=(.venv/bin/python -m pip download -qq --disable-pip-version-check --only-binary=:all:
       --python-version 3.13 --implementation cp --abi cp313 --abi abi3 --abi none)
for minor in $(seq 41 -1 17); do fetch+=(--platform "manylinux_2_${minor}_$(uname -m)"); done
fetch+=(--platform "manylinux2014_$(uname -m)")
inside() { chroot $root /usr/bin/env -i PATH=/usr/bin:/bin "$@"; }
# Its extras lack aiohttp and orjson.
packages=('skyrl[tinker,jax]==0.4.0' jax==0.12.0.1 flax==0.12.12 transformers==5.16.1 torch==2.13.0 aiohttp orjson)
"${fetch[@]}" --dest $root/wheels "${packages[@]}"
inside python3 -m venv /opt/skyrl
inside /opt/skyrl/bin/pip install -q --no-index --find-links /wheels "${packages[@]}"
rm -rf $root/wheels
# Its server wants to be the child of `uv run` and starts its engine with `uv run --extra ... -m MODULE`.
cat >$root/usr/local/bin/uv <<'UV'
#!/bin/sh
while [ "$1" = run ] || [ "$1" = --extra ]; do
    [ "$1" = --extra ] && shift
    shift
done
/opt/skyrl/bin/python "$@" &
trap 'kill $!' TERM INT
wait $!
UV
chmod +x $root/usr/local/bin/uv
echo "$want" >$root/.installed
