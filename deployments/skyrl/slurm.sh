#!/usr/bin/env bash
#SBATCH --job-name=skyrl
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=8
#SBATCH --exclusive
#SBATCH --time=2-00:00:00
#SBATCH --output=skyrl-%j.log
# A student's and a teacher's server of SkyRL 0.4.0 under Slurm. SkyRL installed (docs/engines.md) and .env filled in on storage that all
# nodes see, run in the repository:
#
#     sbatch deployments/skyrl/slurm.sh
#     sbatch --nodes=8 --export=ALL,STUDENT_NODES=6 deployments/skyrl/slurm.sh      # 6 nodes train and sample, 2 score
#
# Each server has its Ray cluster (`ray symmetric-run` of Ray 2.57.0: the first node is the head and runs the server). The job's log has
# the ssh command that forwards the ports. The job ends when one of the servers ends; the same command and the same run go on from the
# last saved weights. Ray and vLLM listen without authentication on the nodes' interfaces: use this only where the job's nodes are yours
# (--exclusive) and no foreign network reaches them.
#
# Run with Ray 2.57.0 and stand-ins for Slurm, uv and SkyRL (without Ray also in tests/deployments); not run on a cluster.
set -euo pipefail
folder=${SKYRL_DEPLOYMENT:-$SLURM_SUBMIT_DIR/deployments/skyrl} # sbatch runs a copy of this file elsewhere
set -a
# shellcheck source=example.env
. "$folder/.env"
set +a
# The heads wait this many seconds for their nodes, and the nodes for their head.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=${RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT:-600}
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT

# start ROLE PORT NODE...: a Ray cluster on the nodes, and the server on the first of them.
start() {
    local role=$1 port=$2
    shift 2
    local nodes address
    nodes=$(IFS=,; echo "$*")
    # An address, because a node may resolve its own name to loopback, which the other nodes cannot reach.
    address=$(srun --nodes=1 --ntasks=1 --nodelist="$1" hostname -I | awk '{print $1}')
    echo "$role: ssh -N -L $port:127.0.0.1:$port $1"
    srun --nodes=$# --ntasks=$# --nodelist="$nodes" --chdir="$SKYRL_HOME" --kill-on-bad-exit=1 \
        uv run --extra tinker --extra "$BACKEND" \
        ray symmetric-run --address "$address:6379" --min-nodes $# -- "$folder/serve.sh" "$role" &
}

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
if [ -z "${TEACHER:-}" ]; then
    start student "${STUDENT_PORT:-8000}" "${nodes[@]}"
else
    for_student=${STUDENT_NODES:-1}
    if [ "$for_student" -ge ${#nodes[@]} ]; then
        echo "slurm.sh: ${#nodes[@]} nodes, $for_student of them for the student, leave none for the teacher;" \
            "ask for more (sbatch --nodes), or leave TEACHER empty in $folder/.env." >&2
        exit 2
    fi
    start student "${STUDENT_PORT:-8000}" "${nodes[@]:0:for_student}"
    start teacher "${TEACHER_PORT:-8001}" "${nodes[@]:for_student}"
fi
wait -n
