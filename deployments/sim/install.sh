#!/bin/sh
# Inside a Debian trixie root: the simulators and the Python of the simulation image. Run by the Dockerfile and by root.sh.
# Wheels are taken from ./wheels where root.sh has put them, else from the index that pip knows.
set -eu
cd "$(dirname "$0")"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2046
apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-unsafe-io $(cat packages.txt)
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

from=
[ -d wheels ] && from="--no-index --find-links wheels"
python3 -m venv /opt/sim
# shellcheck disable=SC2086
/opt/sim/bin/pip install -q --no-cache-dir $from -r requirements.txt
# In a directory of its own: two generations of cocotb cannot share one environment.
# shellcheck disable=SC2086
/opt/sim/bin/pip install -q --no-cache-dir $from --no-deps --target /opt/cocotb1 -r requirements-cocotb1.txt
mkdir -p /code/docs /code/rundir /code/rtl /code/verif /code/src /src /rundir /guard /control
