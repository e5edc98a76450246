"""Measure where the time of concurrent episodes goes: the model, the sandboxes, and this program's own work.

    python -m benchmarks.episode_throughput [--at-once 32] [--rate 50] [--executor bubblewrap]

A scripted policy works on one agentic example problem: it reads the documents, writes a design that does not compile, fixes it, writes a test
bench, compiles, simulates, synthesizes and submits. Each turn takes as long as a model that writes `--rate` tokens a second: a token for 3.5
characters of the call, and 60 for a thought. Episodes are played and recorded as in an evaluation. Prints wall time by part, and CPU time.
The exit code is 1 if this program's own work took more than a tenth of the wall time.
"""

import asyncio
import logging
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import options, show
from benchmarks.episodes import script
from rtl_core.config import load_config
from rtl_core.config.protocol import evaluation_overrides, problems_override, protocol_file
from rtl_core.episodes.episode import Reply, Script
from rtl_core.grading.executors import make_executor
from rtl_core.history.records import Conditions
from rtl_core.rollouts.batch import open_batch
from rtl_core.rollouts.evaluation import evaluation_batch, plan_evaluation
from rtl_core.rollouts.playing import Player, play
from rtl_core.run.graders import ConversationPool, OneJobPerCore
from rtl_core.run.session import open_session
from rtl_core.types.problem import Problem

EXAMPLE = "cvdp/cvdp_v1.1.0_example_agentic_code_generation_no_commercial_with_solutions.jsonl"
MOST_OURS = 0.1
BENCH = """module tb;
  reg clk = 0, reset = 1; reg [7:0] req = 0, priority_override = 0; wire [7:0] grant; wire valid; wire [2:0] grant_index;
  fixed_priority_arbiter dut(.*);
  always #5 clk = ~clk;
  initial begin
    #12 reset = 0;
    for (int i = 0; i < 2000; i++) begin @(negedge clk) req = $random; end
    $display("grant %b", grant); $finish;
  end
endmodule
"""


class Clock(defaultdict[str, list[float]]):
    """Seconds by kind of work, from all threads."""

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self[name].append(time.monotonic() - started)


@dataclass
class Timed:
    """An executor or a thread pool whose work is measured."""

    inner: Any
    clock: Clock
    name: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, job: Any) -> Any:
        with self.clock.measure(self.name):
            return self.inner.run(job)

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        def measured() -> Any:
            with self.clock.measure(self.name):
                return work(*arguments)

        return self.inner.submit(measured)


@dataclass
class Waiting:
    """A script that is as slow as a model."""

    script: Script
    rate: float
    clock: Clock

    def reply(self, *arguments: Any) -> Reply:
        reply = self.script.reply(*arguments)
        n_tokens = 60 + sum(len(call.arguments) for call in reply.calls) * 2 // 7
        with self.clock.measure("model"):
            time.sleep(n_tokens / self.rate)
        return replace(reply, n_tokens=n_tokens)


def work(problem: Problem) -> Script:
    """Ten turns, of which four run programs."""
    assert problem.golden, "it is an example with its solution"
    ((path, text),) = problem.golden.items()
    top = path.rsplit("/", 1)[-1].split(".")[0]
    return script([
        ("list", {}), ("read", {"path": next(p for p in problem.context if p.startswith("docs/"))}),
        ("write", {"path": path, "content": text.replace("endmodule", "")}), ("compile", {}),
        ("write", {"path": path, "content": text}), ("compile", {}), ("write", {"path": "verif/tb.sv", "content": BENCH}),
        ("simulate", {"bench": "verif/tb.sv", "top": "tb"}), ("synthesize", {"top": top}), ("submit", {}),
    ])  # fmt: skip


async def measure(arguments: Any, folder: Path, clock: Clock) -> tuple[float, float, float]:
    """Wall time, CPU time of the tools' programs, and CPU time of this program, in seconds."""
    file = protocol_file("cvdp")
    settings = [
        problems_override([str(arguments.data / EXAMPLE)]), f'run.history="{folder}/h.duckdb"', f'run.directory="{folder}"',
        "evaluation.agentic=true", 'tinker.student="scripted"', 'evaluation.endpoint="http://127.0.0.1:9/v1"',
    ]  # fmt: skip
    config = load_config(file, evaluation_overrides(file, settings, arguments.at_once, "throughput"))
    with closing(make_executor(arguments.executor)) as executor, ThreadPoolExecutor(arguments.at_once) as threads:
        tools: Any = Timed(OneJobPerCore(Timed(executor, clock, "sandbox")), clock, "sandbox and waiting")
        async with open_session(config, with_policy=False) as session:
            (problem_id,) = (problem.id for problem in session.loaded.heldout)
            policy = work(session.problems[problem_id])
            asked: Any = Timed(threads, clock, "episodes")
            player = Player(
                lambda *place: Waiting(policy, arguments.rate, clock), ConversationPool(asked, tools), agentic=True
            )
            plan = replace(plan_evaluation(session, "student", 0), other=Conditions(turns=config.episode.turns))
            batch = open_batch(session, evaluation_batch(session, plan))
            started, own_s = time.monotonic(), time.process_time()
            await play(session, batch, problem_id, player)
            await session.recorder.settle()
            found = time.monotonic() - started, executor.cpu_s, time.process_time() - own_s
        ended = "SELECT count(*) AS n FROM episodes WHERE ended = 'submitted' AND turns = 10"
        assert session.history.query(ended).to_pylist() == [{"n": arguments.at_once}], "every episode submits"
        return found


def main() -> int:
    rate = (50.0, "tokens a second of one conversation")
    arguments = options(__doc__, data=True, at_once=32, rate=rate, executor="bubblewrap").parse_args()
    logging.disable(logging.WARNING)
    clock = Clock(list)
    with tempfile.TemporaryDirectory() as folder:
        seconds, programs_s, own_s = asyncio.run(measure(arguments, Path(folder), clock))
    whole, model_s, sandbox_s, tools_s = (
        sum(clock[name]) for name in ("episodes", "model", "sandbox", "sandbox and waiting")
    )
    parts = {"model": model_s, "sandboxes": sandbox_s, "waiting for a core": tools_s - sandbox_s}
    parts["our own work"] = whole - sum(parts.values())
    cpu = {"CPU of programs in sandboxes": programs_s, "CPU of this program": own_s}
    rows = [(name, f"{value:.1f}", f"{value / whole:.1%}") for name, value in parts.items()]
    rows += [(name, f"{value:.1f}", f"{value / sum(cpu.values()):.1%}") for name, value in cpu.items()]
    title = f"{arguments.at_once} episodes at once, {seconds:.0f} s, {os.cpu_count()} cores"
    show(title, ("", "seconds", "share"), [*rows[: len(parts)], None, *rows[len(parts) :]], width=90)
    return 1 if parts["our own work"] > MOST_OURS * whole else 0


if __name__ == "__main__":
    sys.exit(main())
