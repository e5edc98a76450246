#!/bin/sh
# Inside a Debian trixie root: the simulators and the Python of the simulation image. Run by the Dockerfile and by root.sh.
# The simulators (tools.txt) come from Debian's next suite, which has the public benchmark's Icarus 13, and need nothing else of it.
# Wheels are taken from ./wheels where root.sh has put them, else from the index that pip knows.
set -eu
cd "$(dirname "$0")"
export DEBIAN_FRONTEND=noninteractive
next=forky
mirror="$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null |
    sed -n 's/^deb \(\[[^]]*\] \)\{0,1\}\([a-z]*:[^ ]*\) .*/\2/p; s/^URIs: *\([^ ]*\).*/\1/p' | head -n 1)"
# A mirror that lags is no harm: the versions are named.
echo "deb [check-valid-until=no] $mirror $next main" >/etc/apt/sources.list.d/next.list
printf 'Package: *\nPin: release n=%s\nPin-Priority: 50\n' $next >/etc/apt/preferences.d/next
apt-get update -q
install="apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-unsafe-io"
# shellcheck disable=SC2046
$install $(cat packages.txt)
# shellcheck disable=SC2046
$install $(sed "/=/!s,\$,/$next," tools.txt) || {
    echo "warning: the mirror has other versions than tools.txt; installing the newest of $next" >&2
    $install $(sed "s,=.*,,; s,\$,/$next," tools.txt)
}
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
