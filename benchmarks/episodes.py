"""Scripted episodes on the agentic problems must end with the verdict of grading the same files directly.

    python -m benchmarks.episodes [--every 1] [--seconds 20] [--executor bubblewrap] [--data ../shared/data]

The script reads the documents, writes an answer with the demanded interface and no behaviour, compiles it and submits. Prints for each
problem the outcome, the seconds of its two gradings and whether they differ, and the number of each outcome. Some harnesses wait forever for
such an answer; `--seconds` limits the CPU time and the sleep of each of their services.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed

from benchmarks.answers import grader_on, summary
from benchmarks.common import options
from rtl_core.config.episode import Bounds
from rtl_core.episodes.episode import Episode, Script
from rtl_core.grading.executors import Executor, make_executor
from rtl_core.grading.grader import Grader
from rtl_core.grading.limits import Limits
from rtl_core.grading.stand_in import stand_in
from rtl_core.problems.cvdp import read_cvdp
from rtl_core.types.answer import Answer
from rtl_core.types.problem import Problem
from rtl_core.types.verdict import Verdict

PUBLISHED = "cvdp/cvdp_v1.0.2_agentic_code_generation_no_commercial.jsonl"


def known_answer(problem: Problem, files: Mapping[str, str]) -> Script:
    """A script that reads the documents, writes the files, compiles and submits."""
    calls: list[tuple[str, dict[str, str]]] = [("list", {})]
    calls += [("read", {"path": path}) for path in problem.context if path.startswith("docs/")]
    calls += [("write", {"path": path, "content": text}) for path, text in files.items()]
    return script([*calls, ("compile", {}), ("submit", {})])


def script(calls: Iterable[tuple[str, Mapping[str, object]]]) -> Script:
    """A policy that makes these calls, given as tool and arguments."""
    return Script([(name, json.dumps(arguments)) for name, arguments in calls])


def both(problem: Problem, executor: Executor, grader: Grader, files: Mapping[str, str]) -> tuple[Verdict, Verdict]:
    """The verdict on a scripted episode that writes these files, and on the files themselves."""
    episode = Episode(problem, executor, Bounds(turns=len(problem.context) + len(files) + 10))
    answer = episode.play(known_answer(problem, files))
    return grader.grade(problem, answer), grader.grade(problem, Answer(files=dict(files)))


def main() -> int:
    every, seconds = (1, "every Nth problem"), (20.0, "limit for each service of a harness")
    arguments = options(__doc__, data=True, every=every, seconds=seconds, executor="bubblewrap").parse_args()
    outcomes, differ = Counter[str](), 0
    limits = Limits(wall_s=arguments.seconds, cpu_s=arguments.seconds)
    with (
        make_executor(arguments.executor) as executor,
        grader_on(arguments.executor, limits=limits) as grader,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        problems = read_cvdp(arguments.data / PUBLISHED).problems[:: arguments.every]
        answers = [(problem, files) for problem in problems if (files := stand_in(problem))]
        played = {pool.submit(both, problem, executor, grader, files): problem.id for problem, files in answers}
        outcomes["no interface to answer with"] = len(problems) - len(played)
        for done in as_completed(played):
            episode, single = done.result()
            outcomes[single.outcome.value] += 1
            differ += summary(episode) != summary(single)
            words = "" if summary(episode) == summary(single) else f", but {summary(single)} single-shot"
            print(
                f"{played[done]}: {summary(episode)}{words}; {episode.wall_s:.1f} and {single.wall_s:.1f} s", flush=True
            )
    print(f"{outcomes.total()} problems, {differ} with different verdicts: {dict(outcomes)}")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
