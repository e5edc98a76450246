"""A rehearsal of day one on Tinker's cloud, in a box: `python -m benchmarks.rehearsal`.

`rtl-distill train cvdp` runs as it is shipped, but for the models' names, the service's address, sizes, and two keys that tiny models need
(`command`). It talks to the embedded service through a proxy (proxy.py) that has a cloud's latencies and, at planned requests, its faults
(faults.py). The models are the shipped tiny ones under a published chat template, so that nearly no answer passes; everything else is real:
the command, Prefect, the SDK, the problems, the simulators, the history.

    python -m benchmarks.rehearsal [--executor bubblewrap] [--folder FOLDER] [--problems FILE ...] [--chat-template FILE]

A folder that is kept (`--folder`) knows the validated problems of the rehearsal before. With Docker, an engine must answer
(`scripts/with-docker-engine.sh python -m benchmarks.rehearsal ...` starts one) that has the image of `make sim-image`.

Exit code 1 unless the run ends by itself after all of its steps, every fault was met and mended, nothing was done twice or lost (the history
against the service's own counters), and a step takes at most 1.15 times its longest stage (`--no-timing`: not asked).
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rehearsal.faults import planned
from benchmarks.rehearsal.findings import Checked, check, show
from benchmarks.rehearsal.proxy import Latency, Proxy
from rtl_core.config import load_config
from rtl_core.cost.tokens import load_prices
from rtl_core.localtinker.process import LocalTinker
from rtl_core.tinymodels import model_path

CLOUD = {"sample_s": 44.0, "score_s": 3.0, "train_s": 31.0, "save_s": 2.0}
"""Seconds of a real job (35B student, 397B teacher, CVDP), as in benchmarks/overlap.py."""
CONTEXT = 16384
"""Context of the tiny models here: more than they were trained on, as much as CVDP's prompts need."""


@dataclass(frozen=True)
class Size:
    """How large a rehearsal is."""

    starter: int
    groups: int = 8
    answers: int = 2
    prompt_tokens: int = 4096
    answer_tokens: int = 128
    faults_a_step: int = 3
    pause_s: float = 12.0
    evaluation_samples: int = 1


def templated(folder: Path, chat_template: Path) -> dict[str, Path]:
    """Copies of the tiny models under another chat template."""
    models = {}
    for role in ("student", "teacher"):
        models[role] = Path(shutil.copytree(model_path(role), folder / role, dirs_exist_ok=True))  # type: ignore[arg-type]
        shutil.copyfile(chat_template, models[role] / "chat_template.jinja")
        config = models[role] / "config.json"
        config.write_text(
            config.read_text().replace('"max_position_embeddings": 1024', f'"max_position_embeddings": {CONTEXT}')
        )
    return models


def priced(folder: Path, models: dict[str, Path]) -> Path:
    """A price list in which the tiny models cost what those of `cvdp` do, since its budget needs their prices."""
    real = load_config("cvdp", environment={}, check_files=False).tinker
    prices = load_prices().models
    file = folder / "prices.toml"
    with file.open("w") as out:
        out.write('as_of = 2026-01-01\nsource = "the models of the configuration cvdp"\n')
        for path, name in ((models["student"], real.student), (models["teacher"], real.teacher)):
            out.write(f"[models.{json.dumps(str(path))}]\n")
            out.writelines(
                f"{kind} = {value}\n" for kind, value in prices[str(name)].model_dump(exclude_none=True).items()
            )
    return file


def command(folder: Path, run: str, url: str, models: dict[str, Path], executor: str, size: Size) -> list[str]:
    """The command of the run: names, address and sizes, and what a tiny model needs."""
    overrides = [
        f"run.name={run}",
        f"run.directory={folder / 'runs'}",
        f"run.history={folder / 'history.duckdb'}",
        "run.epochs=1",
        f"tinker.base_url={url}",
        f"tinker.student={models['student']}",
        f"tinker.teacher={models['teacher']}",
        f"cost.prices={priced(folder, models)}",
        f"problems.sources.0.path={folder / 'problems.jsonl'}",
        f"problems.sources.1.train={size.starter}",
        "problems.sources.1.heldout=4",
        f"grading.executor={executor}",
        f"prompting.max_prompt_tokens={size.prompt_tokens}",
        f"sampling.max_tokens={size.answer_tokens}",
        f"sampling.group_size={size.answers}",
        f"curriculum.problems_per_step={size.groups}",
        f"evaluation.samples={size.evaluation_samples}",
        "evaluation.k=[1]",
        # The prompt that the tiny models were trained on: under it they end most answers to starter problems. Those to CVDP's they do
        # not, so the shipped safe ranges would rightly end the run.
        "prompting.template=bare",
        "health.accept_up_to_step=1000000",
        # Nearly no answer passes, so that steps without the teacher would have nothing to train on: it stays until the last one.
        "learning.kl_schedule_part=1.0",
    ]
    return [
        sys.executable,
        "-m",
        "rtl_distill.cli",
        "train",
        "cvdp",
        *(word for one in overrides for word in ("--set", one)),
    ]


def rehearse(
    problems: list[Path],
    chat_template: Path,
    folder: Path,
    executor: str,
    size: Size,
    factor: float,
    overrides: Sequence[str] = (),
) -> Checked:
    """One rehearsal, with further overrides of the configuration; prints the run's own lines as they come. Returns what was found."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "problems.jsonl").write_text(
        "".join(f"{line}\n" for path in problems for line in path.read_text().splitlines() if line)
    )
    run = f"rehearsal-{secrets.token_hex(3)}"
    models = templated(folder, chat_template)
    faults = planned(size.faults_a_step, size.pause_s)
    latency = Latency(**{name: factor * seconds for name, seconds in CLOUD.items()}, groups=size.groups)
    service = LocalTinker({str(path): path for path in models.values()}, folder / run / "service")
    with service, Proxy(service.base_url, latency, faults) as proxy:
        environment = {**os.environ, "TINKER_API_KEY": service.api_key, "PYTHONUNBUFFERED": "1", "COLUMNS": "160"}
        began = time.monotonic()
        started = subprocess.Popen(
            [*command(folder, run, proxy.url, models, executor, size), *(f"--set={one}" for one in overrides)],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        assert started.stdout is not None
        try:
            lines = []
            for line in started.stdout:
                lines.append(line.rstrip("\n"))
                print(f"  {line}", end="", flush=True)
            code = started.wait()
        finally:
            started.kill()
            started.wait()
        return check(
            folder / "history.duckdb", run, service, folder / run / "service", proxy, faults, code, lines, began
        )


def main() -> int:
    words = argparse.ArgumentParser(
        "benchmarks.rehearsal", description="A rehearsal of day one on Tinker's cloud, in a box."
    )
    words.add_argument(
        "--problems", type=Path, nargs="+", help="CVDP's JSON Lines files (default: those in RTL_DISTILL_DATA)"
    )
    words.add_argument(
        "--chat-template", type=Path, help="a model's chat template, Jinja (default: Qwen3.5's in RTL_DISTILL_DATA)"
    )
    words.add_argument("--executor", choices=("docker", "bubblewrap"), default="docker")
    words.add_argument(
        "--folder", type=Path, help="keep history and weights here; validated problems are known the next time"
    )
    words.add_argument(
        "--starter", type=int, default=36, help="starter problems beside CVDP's: with 92 agentic ones, 12 steps or more"
    )
    words.add_argument("--factor", type=float, default=1.0, help="the cloud's stage times are multiplied by this")
    words.add_argument("--no-timing", action="store_true", help="do not hold the overlap against its limit")
    words.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override one more key")
    given = words.parse_args()
    data = Path(os.environ.get("RTL_DISTILL_DATA", "../shared/data"))
    problems = given.problems or sorted((data / "cvdp").glob("*code_generation_no_commercial*.jsonl"))
    template = given.chat_template or data / "chat-templates" / "Qwen3.5-4B.jinja"
    if not problems or not template.is_file():
        words.error(f"no CVDP files, or no chat template, in {data}: set RTL_DISTILL_DATA, or name them")
    with tempfile.TemporaryDirectory(prefix="rtl-distill-rehearsal-") as temporary:
        folder = given.folder or Path(temporary)
        size = Size(starter=given.starter)
        found = rehearse(problems, template, folder.resolve(), given.executor, size, given.factor, given.set)
        return 0 if show(found, least_steps=12, timing=not given.no_timing) else 1


if __name__ == "__main__":
    sys.exit(main())
