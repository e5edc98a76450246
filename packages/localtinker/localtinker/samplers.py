"""Samplers, each with one set of weights (a base model, or a frozen adapter on it), and the pool of recently used ones.

Dense models run on `decoder.py` in one continuous batch; others run in lockstep. In deterministic mode
every row runs in its own batch, so that its result depends on its own request only.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from localtinker.batching import GenerationBatch, LockstepBatch, LockstepDecoder
from localtinker.decoder import DenseDecoder
from localtinker.devices import give_back_free_memory
from localtinker.lora import LoraSpec, read_adapter
from localtinker.sampling import Batch, Row, Vocabulary

if TYPE_CHECKING:
    from localtinker.models import ServedModel


@dataclass(frozen=True)
class Sampler:
    """A set of weights, ready to sample."""

    decoder: DenseDecoder | LockstepDecoder
    vocabulary: Vocabulary
    deterministic: bool
    nbytes: int
    """Memory beyond the shared base weights."""

    def place(self, rows: Sequence[Row], batches: list[Batch]) -> list[tuple[Batch, list[Row]]]:
        """Assign `rows` to running batches (from `batches`) or new ones."""
        if self.deterministic:
            return [(self._new_batch(), [row]) for row in rows]
        if isinstance(self.decoder, DenseDecoder):
            batch = batches[0] if batches else self._new_batch()
            return [(batch, list(rows))]
        by_length: dict[int, list[Row]] = {}
        for row in rows:
            by_length.setdefault(len(row.request.prompt), []).append(row)
        return [(self._new_batch(), group) for group in by_length.values()]

    def _new_batch(self) -> Batch:
        if isinstance(self.decoder, DenseDecoder):
            return GenerationBatch(self.decoder, self.vocabulary)
        return LockstepBatch(self.decoder, self.vocabulary)


@dataclass(frozen=True)
class SampledWeights:
    """Key of a frozen set of weights: a base model, alone or with the adapter in a folder that never changes."""

    base: str
    folder: Path | None = None
    spec: LoraSpec | None = None


@dataclass(frozen=True)
class SamplingLimits:
    """Limits of a sampling loop: bytes of key-value caches, and number and private bytes of the samplers
    kept in memory."""

    cache_bytes: int
    samplers: int = 16
    sampler_bytes: int = 1 << 30

    def share(self, count: int) -> SamplingLimits:
        """Return one of `count` equal shares."""
        return SamplingLimits(
            self.cache_bytes // count,
            max(1, self.samplers // count),
            self.sampler_bytes // count,
        )


@dataclass(frozen=True)
class SamplerPool:
    """An LRU cache of samplers, bounded in number and bytes. An evicted sampler is rebuilt from its frozen folder."""

    models: Mapping[str, ServedModel]
    limits: SamplingLimits
    deterministic: bool = field(kw_only=True)
    _samplers: OrderedDict[SampledWeights, Sampler] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._samplers)

    def get(self, weights: SampledWeights, in_use: set[SampledWeights]) -> Sampler:
        """Return the sampler of `weights`. Samplers `in_use` by running batches are not evicted."""
        if weights not in self._samplers:
            model = self.models[weights.base]
            adapter = None
            if weights.folder is not None and weights.spec is not None:
                adapter = (read_adapter(weights.folder), weights.spec)
            self.trim(in_use, more=1, more_bytes=model.sampler_bytes(adapter))
            self._samplers[weights] = model.sampler(adapter, deterministic=self.deterministic)
        self._samplers.move_to_end(weights)
        return self._samplers[weights]

    def trim(self, in_use: set[SampledWeights], *, more: int = 0, more_bytes: int = 0) -> None:
        """Evict the least recently used until the limits allow `more` further samplers with `more_bytes`
        private bytes."""
        count = len(self._samplers)
        for old in [w for w in self._samplers if w not in in_use]:
            nbytes = sum(sampler.nbytes for sampler in self._samplers.values())
            few = len(self._samplers) + more <= self.limits.samplers
            if few and nbytes + more_bytes <= self.limits.sampler_bytes:
                break
            self._samplers.pop(old).decoder.release()
        if len(self._samplers) < count:
            give_back_free_memory()
