"""deployments/skyrl: the files parse, listen on loopback only, and give SkyRL the options that its version 0.4.0 has.

Slurm, uv and SkyRL are stand-ins here that print what they are asked.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

FOLDER = Path(__file__).parents[2] / "deployments/skyrl"
OPTIONS = {
    "--host", "--port", "--base-model", "--runtime-role", "--backend", "--backend-config", "--checkpoints-base",
}  # fmt: skip
"""Options of SkyRL 0.4.0's API server that the scripts use (skyrl/tinker/config.py, skyrl/tinker/api.py)."""
LISTS_ARGUMENTS = '#!/bin/sh\nprintf "%s\\n" "$@"\necho "database $SKYRL_DATABASE_URL"\n'
SRUN = """#!/bin/bash
for given; do case $given in --nodelist=*) list=${given#*=} ;; esac; done
while [[ $1 == --* ]]; do shift; done
if [ "$1" = hostname ]; then echo "10.0.0.${list#node} 172.17.0.1"; else echo "on $list: $*"; fi
"""


def settings(**changes: str) -> dict[str, str]:
    """The variables of example.env, with changes."""
    script = f"set -a; . {FOLDER}/example.env; env -0"
    printed = subprocess.run(
        ["bash", "-c", script], env={}, capture_output=True, text=True, check=True
    )
    pairs = (line.partition("=")[::2] for line in printed.stdout.split("\0") if line)
    return {**dict(pairs), **changes}


@pytest.fixture
def programs(tmp_path):
    """A folder with stand-ins, first in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {
        "uv": LISTS_ARGUMENTS,
        "srun": SRUN,
        "scontrol": "#!/bin/sh\nseq --format=node%g $NODES\n",
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return folder


def run(script: str, *arguments: str, programs: Path, **variables: str):
    home = programs.parent
    environment = {
        **settings(SKYRL_HOME=str(home), CHECKPOINTS=f"{home}/checkpoints"),
        "PATH": f"{programs}:{os.environ['PATH']}",
        **variables,
    }
    return subprocess.run(
        ["bash", str(FOLDER / script), *arguments],
        env=environment, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("role", "port", "runtime"),
    [("student", "8000", "combined"), ("teacher", "8001", "inference")],
)
def test_a_server_listens_on_loopback_with_options_that_skyrl_has(
    programs, role, port, runtime
):
    done = run("serve.sh", role, programs=programs)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    start = printed.index("skyrl.tinker.api") + 1
    # SkyRL repeats what stands before the module for its engine.
    assert printed[:start] == [
        "run", "--extra", "tinker", "--extra", "megatron", "-m", "skyrl.tinker.api",
    ]  # fmt: skip
    options = dict(zip(printed[start:-1:2], printed[start + 1 : -1 : 2], strict=True))
    assert set(options) == OPTIONS
    assert options["--host"] == "127.0.0.1"
    assert (options["--port"], options["--runtime-role"]) == (port, runtime)
    assert options["--checkpoints-base"] == f"{programs.parent}/checkpoints/{role}"
    assert json.loads(options["--backend-config"])
    assert printed[-1] == f"database sqlite:///{programs.parent}/checkpoints/{role}.db"


def test_a_database_with_a_password_is_no_argument(programs):
    secret = "postgresql://skyrl:secret@db/student"
    done = run("serve.sh", "student", programs=programs, STUDENT_DATABASE=secret)
    assert done.stdout.count("secret") == 1
    assert done.stdout.endswith(f"database {secret}\n")


def test_a_server_without_a_role_is_refused(programs):
    done = run("serve.sh", programs=programs)
    assert done.returncode == 2
    assert "'student' or 'teacher'" in done.stderr


def test_sizes_of_the_example_fit_together():
    """What SkyRL and Megatron assert (train/config/config.py), and that 8 GPUs are enough."""
    config = json.loads(settings()["STUDENT_CONFIG"])
    megatron, engine = "trainer.policy.megatron_config.", "generator.inference_engine."
    trains = config["trainer.placement.policy_num_nodes"]
    trains *= config["trainer.placement.policy_num_gpus_per_node"]
    samples = config[engine + "num_engines"] * config[engine + "tensor_parallel_size"]
    assert config["trainer.placement.colocate_all"] is False
    assert trains + samples == 8
    experts = config[megatron + "expert_model_parallel_size"]
    assert trains % (experts * config[megatron + "expert_tensor_parallel_size"]) == 0
    assert trains % config[megatron + "tensor_model_parallel_size"] == 0
    only = "language_model_only"
    assert config[f"trainer.policy.{only}"] == config[engine + only]


def test_compose_publishes_on_loopback_only_and_shares_no_gpu():
    compose = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    services = compose["services"].values()
    ports = [port for service in services for port in service["ports"]]
    assert ports == ["127.0.0.1:8000:8000", "127.0.0.1:8001:8000"]
    devices = [
        device["device_ids"]
        for service in services
        for device in service["deploy"]["resources"]["reservations"]["devices"]
    ]
    gpus = [gpu for ids in devices for gpu in ids]
    assert len(set(gpus)) == len(gpus) == 16
    networks = [service["networks"] for service in services]
    assert networks == [["student"], ["teacher"]]
    assert all("network_mode" not in service for service in services)
    # `uv run` must be a parent, and is none if it is process 1 of the container and reaps nobody.
    assert all(service["init"] for service in services)
    mounted = {name for s in services for name in (v.partition(":")[0] for v in s["volumes"])}
    assert mounted == set(compose["volumes"])


@pytest.mark.parametrize(
    ("nodes", "share", "student", "teacher"),
    [
        (2, "1", "node1", "node2"),
        (4, "3", "node1,node2,node3", "node4"),
    ],
)
def test_a_job_gives_each_server_its_nodes(programs, nodes, share, student, teacher):
    variables = {"STUDENT_NODES": share, "NODES": str(nodes)}
    lines = job(programs, variables)
    for role, list_ in (("student", student), ("teacher", teacher)):
        head = list_.split(",")[0]
        port = {"student": 8000, "teacher": 8001}[role]
        assert f"{role}: ssh -N -L {port}:127.0.0.1:{port} {head}" in lines
        count = list_.count(",") + 1
        assert (
            f"on {list_}: uv run --extra tinker --extra megatron ray symmetric-run --address "
            f"10.0.0.{head[4:]}:6379 --min-nodes {count} -- {programs.parent}/serve.sh {role}"
        ) in lines


def test_a_job_without_a_teacher_is_all_student(programs):
    lines = job(programs, {"NODES": "2"}, TEACHER="")
    assert [line.split(":")[0] for line in lines if line.startswith("on ")] == [
        "on node1,node2"
    ]


def test_a_job_with_too_few_nodes_says_so(programs):
    done = submitted(programs, {"NODES": "1"})
    assert done.returncode == 2
    assert "leave none for the teacher; ask for more (sbatch --nodes)" in done.stderr


def job(programs: Path, variables: dict[str, str], **env_file: str) -> list[str]:
    done = submitted(programs, variables, **env_file)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def submitted(programs: Path, variables: dict[str, str], **env_file: str):
    """Run slurm.sh as a job: with an .env, its node list, and in the background of a folder elsewhere."""
    home = programs.parent
    values = settings(SKYRL_HOME=str(home), **env_file)
    del values["_"], values["PWD"], values["SHLVL"]
    lines = [f"{name}='{value}'" for name, value in values.items()]
    (home / ".env").write_text("\n".join(lines))
    # `wait -n` ends with the first server; the second prints at the same time.
    text = (FOLDER / "slurm.sh").read_text()
    script = home / "job.sh"
    script.write_text(text.replace("\nwait -n\n", "\nwait\n"))
    assert "\nwait -n\n" in text
    return subprocess.run(
        ["bash", str(script)],
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "SLURM_SUBMIT_DIR": "/nowhere",
            "SKYRL_DEPLOYMENT": str(home),
            "SLURM_JOB_NODELIST": "node[1-9]",
            **variables,
        },
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_the_ray_cluster_starts_the_servers_on_its_head():
    cluster = yaml.safe_load((FOLDER / "ray-cluster.yaml").read_text())
    assert cluster["provider"]["type"] == "local"
    head, workers = cluster["head_start_ray_commands"], cluster["worker_start_ray_commands"]
    assert [
        sum(role in line for line in head) for role in ("serve.sh student", "serve.sh teacher")
    ] == [1, 1]
    assert not any("serve.sh" in line for line in workers)
    assert any("ray start --head" in line for line in head)
    ((remote, local),) = cluster["file_mounts"].items()
    assert (FOLDER.parents[1] / local).samefile(FOLDER)
    assert all(remote in line for line in [*head, *workers, *cluster["setup_commands"][1:]])
    for command in [*head, *workers, *cluster["setup_commands"]]:
        subprocess.run(["bash", "-n", "-c", command], check=True)
