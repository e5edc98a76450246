#!/usr/bin/env bash
# Run a command with a Docker engine: the running one, or else a temporary one, which ends with the command.
# usage: scripts/with-docker-engine.sh COMMAND [ARGUMENT ...]
set -euo pipefail
if docker info >/dev/null 2>&1; then
    exec "$@"
fi
for program in docker dockerd; do
    command -v "$program" >/dev/null || { echo "error: $program is missing: apt-get install docker.io (and docker-cli)" >&2; exit 2; }
done
[ "$(id -u)" -eq 0 ] || { echo "error: no Docker engine answers, and only root can start one" >&2; exit 2; }
log="$(mktemp)"
# Grading containers have no network, so the engine needs neither a bridge nor firewall rules.
command=(dockerd --iptables=false --ip6tables=false --bridge=none)
setsid "${command[@]}" >"$log" 2>&1 </dev/null &
engine=$!

stop() {
    # Use the pid file, because a test may have restarted the engine.
    pid="$(cat /var/run/docker.pid 2>/dev/null || echo "$engine")"
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 60); do kill -0 "$pid" 2>/dev/null || break; sleep 0.5; done
    rm -f "$log"
}
trap stop EXIT
for _ in $(seq 120); do
    docker info >/dev/null 2>&1 && break
    kill -0 "$engine" 2>/dev/null || { tail -n 15 "$log" >&2; echo "error: the Docker engine does not start (see above)" >&2; exit 1; }
    sleep 0.5
done
docker info >/dev/null 2>&1 || { tail -n 15 "$log" >&2; echo "error: the Docker engine does not answer" >&2; exit 1; }
"$@"
