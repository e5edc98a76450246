"""What a run's account at its service holds that no run has recorded, and what the run was billed for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
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
    from rtl_core.backend.tinker.account import Bill, StoredWeights

LATELY = timedelta(hours=24)
"""Weights of a run elsewhere that were saved within this time may be in use."""
GB = 1e9
_PATHS = """
SELECT state_path FROM steps UNION SELECT sampler_path FROM steps
UNION SELECT start_state FROM runs UNION SELECT start_sampler FROM runs
UNION SELECT unnest(regexp_extract_all(config::VARCHAR, 'tinker://[^"]+')) FROM runs
"""
"""Weights that runs have recorded, and those that their configurations name: teachers, starts, evaluated ones."""


@dataclass(frozen=True)
class LeftWeights:
    """Saved weights of one run that no run of the history has recorded."""

    run: str
    host: str
    state: str
    """Why they are there, in words."""
    unused: bool
    """Whether no run needs them."""
    weights: Sequence[StoredWeights]


async def weights_left(history: History, config: RunConfig) -> list[LeftWeights]:
    """Return the weights in the account of a run that no run of the history has recorded: of interrupted attempts of
    this run, of runs without a folder on this machine, and without the marks of a run.

    Other weights of runs with a folder here are not included, whether this history has these runs or another one.
    """
    from rtl_core.backend.tinker.account import weights_of_account
    from rtl_core.backend.tinker.marks import known_id

    folders = {config.run.directory}
    for record in history.runs():
        folders.add(Path(record.config.get("run", {}).get("directory", config.run.directory)))
    known = {known_id(path.parent) for folder in folders for path in folder.glob("*/id")}
    own, recorded = known_id(config.run.folder), set(history.column(_PATHS))
    groups = defaultdict(list)
    for one in await weights_of_account(config):
        mark = one.marks.get("run_id")
        if one.path not in recorded and (mark in (None, own) or mark not in known):
            groups[mark, one.marks.get("run", ""), one.marks.get("host", "")].append(one)
    return [
        LeftWeights(run, host, *_state(config, weights, mark, own), weights)
        for (mark, run, host), weights in groups.items()
    ]


def _state(
    config: RunConfig, weights: Sequence[StoredWeights], mark: str | None, own: str | None
) -> tuple[str, bool]:
    """Say why the weights of one run are there, and whether no run needs them."""
    if mark is None:
        return "without marks: of another program or an older version", False
    if mark == own:
        running = is_held(lock_path(config))
        return "this run is running" if running else "of an interrupted attempt", not running
    if max(one.saved_at for one in weights) > utc_now() - LATELY:
        return "saved lately: its run may go on elsewhere", False
    return "left behind", True


async def left_table(left: Sequence[LeftWeights], config: RunConfig) -> Table:
    """Table of `weights_left`, with the cost of their storage if the service tells its price."""
    from rtl_core.backend.tinker.account import storage_price

    price = await storage_price(config)
    caption = f"Storage costs ${price} for a GB and month."
    if price is None:
        caption = "The price of storage is not known: the service tells it to admins alone."
    rows = []
    for one in left:
        size = sum(weights.size for weights in one.weights) / GB
        newest = max(weights.saved_at for weights in one.weights)
        usd = "?" if price is None else f"{size * price:,.2f}"
        named = [one.run, one.host, f"{newest:%Y-%m-%d %H:%M}", str(len(one.weights))]
        rows.append([*named, f"{size:,.3f}", usd, one.state])
    title = f"weights in the account of run {config.run.name!r} that no run has recorded"
    header = "run | machine | newest (UTC) | weights: | GB: | $ a month: | state"
    return Table("", title, caption, header, rows)


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
