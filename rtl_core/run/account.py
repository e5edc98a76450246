"""What a run's account at its service holds that no run has recorded, and what the run was billed for."""

from __future__ import annotations

import platform
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rtl_core.config import RunConfig
from rtl_core.cost.tokens import Tokens, load_prices, total_dollars
from rtl_core.errors import PolicyError
from rtl_core.history.records import utc_now
from rtl_core.history.store import History
from rtl_core.observe.usage import spent
from rtl_core.reporting.blocks import Table
from rtl_core.run.lock import is_held, lock_path
from rtl_grader.words import counted

if TYPE_CHECKING:
    from rtl_core.backend.tinker.account import Bill

UNMARKED = "without marks: of another program or an older version"
LATELY = "saved lately: its run may go on elsewhere"
ELSEWHERE = "of another machine: look there"
UNUSED = ("of an interrupted attempt", "left behind")
"""States of weights that no run needs."""
GB = 1e9
_PATHS = """
SELECT state_path FROM steps UNION SELECT sampler_path FROM steps
UNION SELECT start_state FROM runs UNION SELECT start_sampler FROM runs
UNION SELECT unnest(regexp_extract_all(config::VARCHAR, 'tinker://[^"]+')) FROM runs
"""
"""Weights that runs have recorded, and those that their configurations name: teachers, starts, evaluated ones."""


async def weights_left(history: History, config: RunConfig) -> tuple[Table, dict[str, str]]:
    """Return a table of the weights in the account of a run that no run of the history has recorded, a row for each
    run, and a mapping of path to run for those that no run needs.

    These are weights of interrupted attempts of this run, of runs without a folder on this machine, and without the
    marks of a run. Other weights of runs with a folder here are left out, also if another history has these runs.
    """
    from rtl_core.backend.tinker.account import storage_price, weights_of_account
    from rtl_core.backend.tinker.marks import known_id

    folders = {config.run.directory}
    for record in history.runs():
        folders.add(Path(record.setting("run", "directory", config.run.directory)))
    known = {known_id(path.parent) for folder in folders for path in folder.glob("*/id")}
    own, recorded = known_id(config.run.folder), set(history.column(_PATHS))
    groups = defaultdict(list)
    for path, marks, saved_at, size in await weights_of_account(config):
        mark = marks.get("run_id")
        if path not in recorded and (mark in (None, own) or mark not in known):
            groups[mark, marks.get("run", ""), marks.get("host", "")].append(
                (saved_at, size, path)
            )
    price, rows, unused = await storage_price(config), [], dict[str, str]()
    for (mark, *names), weights in groups.items():
        times, sizes, paths = zip(*weights, strict=True)
        newest, gigabytes = max(times), sum(sizes) / GB
        state = _state(config, mark == own, newest, names[1]) if mark else UNMARKED
        if state in UNUSED:
            unused |= dict.fromkeys(paths, names[0])
        usd = "?" if price is None else f"{gigabytes * price:,.2f}"
        numbers = [f"{newest:%Y-%m-%d %H:%M}", str(len(paths)), f"{gigabytes:,.3f}", usd]
        rows.append([*names, *numbers, state])
    title = f"weights in the account of run {config.run.name!r} that no run has recorded"
    header = "run | machine | newest (UTC) | weights: | GB: | $ a month: | state"
    caption = "" if price else "The service tells the price of storage to admins alone."
    return Table("", title, caption, header, rows), unused


def _state(config: RunConfig, is_own: bool, newest: datetime, machine: str) -> str:
    """Say why marked weights of one run are there."""
    if is_own:
        return "this run is running" if is_held(lock_path(config)) else UNUSED[0]
    if machine != platform.node():
        return ELSEWHERE
    return LATELY if newest > utc_now() - timedelta(hours=24) else UNUSED[1]


async def cost_table(history: History, config: RunConfig, *, billed: bool) -> Table:
    """Table of a run's tokens by model and kind, recorded and, if asked for, billed. Raises PolicyError if the service
    has no bill for this key, or none of the run."""
    prices = load_prices(config.cost.prices)
    used = spent(history, config.run.name, config)
    usd = total_dollars(used, prices)
    caption = f"Recorded, by the price list of {prices.as_of}: "
    caption += "no price for some tokens." if usd is None else f"${usd:,.4f}."
    header, theirs = "model | tokens of | recorded:", dict[str, Tokens]()
    if billed:
        bill = await _bill(history, config)
        header, theirs = f"{header} | billed: | difference:", bill.tokens
        caption += f" Billed so far for {counted(len(bill.sessions), 'session')}: ${bill.usd:,.4f} before credits."
    rows = []
    for model in dict.fromkeys([*used, *theirs]):
        ours = used.get(model, Tokens()).by_kind()
        for kind, count in theirs.get(model, Tokens()).by_kind().items():
            numbers = [f"{ours[kind]:,.0f}", f"{count:,.0f}", f"{count - ours[kind]:+,.0f}"]
            if count or ours[kind]:
                rows.append([model, kind, *numbers[: 3 if billed else 1]])
    return Table("", f"tokens of run {config.run.name!r}", caption, header, rows)


async def _bill(history: History, config: RunConfig) -> Bill:
    """Return the bill of a run since it was created. Raises PolicyError if it has no session of the run."""
    from rtl_core.backend.tinker.account import bill_of
    from rtl_core.backend.tinker.marks import run_id

    name, since = config.run.name, history.existing_run(config.run.name).created_at
    bill = await bill_of(config, {"run": name, "run_id": run_id(config)}, since, utc_now())
    if not bill.sessions:
        raise PolicyError(
            f"the bill since {since:%Y-%m-%d %H:%M} UTC has no session of run {name!r}",
            f"a bill lags by some hours: try later, on the machine whose {config.run.folder / 'id'} has the run's id",
        )
    return bill
