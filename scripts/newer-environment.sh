#!/usr/bin/env bash
# Make build/newer: a Debian root with Python 3.13 and docker compose, and in it /opt/harbor and /opt/nemo-gym, the clients of exported
# problems that need a newer Python than ours (2.2 GB in all). As root; does nothing when nothing changed. DEBIAN_MIRROR sets another mirror.
set -euo pipefail
cd "$(dirname "$0")/.."
root=build/newer
. scripts/debian-root.sh
want=$(cat scripts/newer-environment.sh scripts/debian-root.sh | sha256sum)
[ "$(cat $root/.installed 2>/dev/null)" = "$want" ] && exit 0
debian_root $root python3,python3-venv,docker-cli,docker-compose
mkdir $root/wheels
fetch=(.venv/bin/python -m pip download -q --disable-pip-version-check --only-binary=:all:
       --python-version 3.13 --implementation cp --abi cp313 --abi abi3 --abi none)
for tag in manylinux_2_28 manylinux_2_17 manylinux2014; do fetch+=(--platform "${tag}_$(uname -m)"); done
inside() { chroot $root /usr/bin/env -i PATH=/usr/bin:/bin "$@"; }
# The one package among theirs that comes as source alone.
.venv/bin/python -m pip wheel -q --disable-pip-version-check --no-deps --wheel-dir $root/wheels antlr4-python3-runtime==4.9.3
for client in harbor==0.26.0 nemo-gym==0.4.0; do
    folder=${client%%==*}
    "${fetch[@]}" --find-links $root/wheels --dest "$root/wheels/$folder" "$client"
    inside python3 -m venv "/opt/$folder"
    inside "/opt/$folder/bin/pip" install -q --no-index --find-links "/wheels/$folder" "$client"
done
rm -rf $root/wheels
echo "$want" >$root/.installed
