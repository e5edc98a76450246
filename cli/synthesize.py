"""`rtl-distill problems synthesize`: more problems to train on, made from those that there are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rtl_distill.cli.arguments import ConfigOption
from rtl_distill.cli.problems import SourceOption, problems, sources_of


@problems.command()
def synthesize(
    output: Annotated[Path, typer.Option("--output", help="The CVDP file to write (JSON Lines).")],
    config: ConfigOption = "demo",
    source: SourceOption = None,
    count: Annotated[int, typer.Option(min=1, help="How many candidates to make.")] = 100,
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="rename, polarity, bit-order, repair, family; may be repeated. All by default."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Chooses parents, names and places.")] = 0,
    mutants: Annotated[int, typer.Option(min=1, help="Mutants of each golden answer that must fail.")] = 3,
) -> None:
    """Make variants of training problems (renamed, the other reset polarity, a bus turned round), repairs of near misses, and fresh
    specifications of the first generated source, else of the starter families. Kept are those whose golden answer passes and whose mutants fail, and that are no
    near-duplicate of a held-out problem, of the test split included.

    Examples:

        rtl-distill problems synthesize --output data/synthetic.jsonl --count 200

        rtl-distill problems synthesize --source cvdp=data/cvdp --kind rename --kind repair --output data/more.jsonl
    """
    from rich.console import Console

    from rtl_core.errors import ConfigError
    from rtl_core.grading.cache import MemoryCache
    from rtl_core.grading.executors import make_executor
    from rtl_core.grading.grader import Grader
    from rtl_core.problems.load import load_problems
    from rtl_core.problems.sources import GeneratedSource
    from rtl_core.problems.sources.starter import StarterSource
    from rtl_core.synthesis import keeping

    names = {k.replace(" ", "-"): k for k in keeping.KINDS}
    chosen = list(dict.fromkeys(kind or [*names, "family"]))
    if unknown := [name for name in chosen if name not in names and name != "family"]:
        raise ConfigError(f"--kind {unknown[0]}: there is no such kind", f"choose of {', '.join([*names, 'family'])}")
    sources, run_seed, split = sources_of(config, source)
    loaded = load_problems(sources, run_seed, split)
    generated = [entry for entry in sources if isinstance(entry, GeneratedSource)] or [StarterSource(kind="starter")]
    heldout = list(loaded.heldout)
    for entry in generated:
        heldout += entry.make("heldout", 128, 0) + entry.make("test", 128, 0)
    parents = [problem for problem in loaded.train if problem.golden is not None]
    found = keeping.Synthesised()
    fresh = count // len(chosen) if "family" in chosen else 0
    derived = [names[name] for name in chosen if name in names]
    made: list[tuple[str, keeping.Problem]] = []
    made += keeping.candidates(parents, derived, count - fresh, seed, found.dropped)
    if fresh:
        made += [("family", problem) for problem in generated[0].make("train", fresh, run_seed + seed + 1)]
    console = Console()
    executor = make_executor()
    try:
        grader = Grader(executor, seed=1, cache=MemoryCache())
        try:
            keeping.keep(
                made,
                train=loaded.train,
                heldout=heldout,
                grader=grader,
                mutants=mutants,
                workers=len(os.sched_getaffinity(0)),
                into=found,
            )
        finally:
            grader.close()
    finally:
        executor.close()
    keeping.write(found.kept, output)
    console.print(
        f"kept {len(found.kept)} of {count}: {', '.join(f'{n} {k}' for k, n in found.kinds.most_common()) or 'none'}"
    )
    for reason, times in found.dropped.most_common():
        console.print(f"  left out {times}: {reason}", markup=False, highlight=False, soft_wrap=True)
    console.print(f'written: {output}; train on them with kind = "cvdp", heldout_fraction = 0.0', soft_wrap=True)
