#!/usr/bin/env bash
# Starts one server of SkyRL 0.4.0: `serve.sh student` trains and samples, `serve.sh teacher` samples and scores only.
# Settings: .env beside this file (see example.env) or the environment. The server has no authentication and SkyRL's default is to
# listen on every interface, so it listens on loopback unless LISTEN says otherwise (compose.yaml, where the container is the border).
#
# Read in SkyRL 0.4.0: the options (tinker/config.py, the end of tinker/api.py), and that the API server must be a child of `uv run`,
# whose options it repeats for its engine (`_build_uv_run_cmd_engine`).
set -euo pipefail
role=${1:-}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [ -f "$here/.env" ]; then
    set -a
    # shellcheck source=example.env
    . "$here/.env"
    set +a
fi

case $role in
    student)
        model=$STUDENT config=$STUDENT_CONFIG port=${STUDENT_PORT:-8000} runtime=combined vllm_port=21000
        database=${STUDENT_DATABASE:-sqlite:///$CHECKPOINTS/student.db}
        ;;
    teacher)
        model=$TEACHER config=$TEACHER_CONFIG port=${TEACHER_PORT:-8001} runtime=inference vllm_port=25000
        database=${TEACHER_DATABASE:-sqlite:///$CHECKPOINTS/teacher.db}
        ;;
    *)
        echo "serve.sh: name the server to start, 'student' or 'teacher'." >&2
        exit 2
        ;;
esac

mkdir -p "$CHECKPOINTS/$role"
cd "$SKYRL_HOME"
# By the environment, because it may contain a password.
export SKYRL_DATABASE_URL=$database
# SkyRL's vLLM servers search their ports from 8000 (inference_servers/setup.py), where the API servers listen; Ray's workers have
# 10002 to 19999.
export SKYRL_VLLM_START_PORT=${SKYRL_VLLM_START_PORT:-$vllm_port}
# Seconds in which the GPUs must have joined Ray; the default of 180 is short for several nodes (env_vars.py).
export SKYRL_RAY_PG_TIMEOUT_IN_S=${SKYRL_RAY_PG_TIMEOUT_IN_S:-1800}
exec uv run --extra tinker --extra "$BACKEND" -m skyrl.tinker.api \
    --host "${LISTEN:-127.0.0.1}" --port "$port" \
    --base-model "$model" --runtime-role "$runtime" \
    --backend "$BACKEND" --backend-config "$config" \
    --checkpoints-base "$CHECKPOINTS/$role"
