"""What fits into the memory of GPUs, by arithmetic: the embedded service on one, SkyRL on several.

    python -m benchmarks.gpu_memory [--rank 32] [--text 16384]

Nothing here is measured on a GPU. GB are 10^9 bytes. `--text` is the longest prompt with its answer, in tokens.

*Embedded service*, bfloat16, read in packages/localtinker: weights are 2 bytes a parameter, for each model that
it serves. Samplers share them (copies are merged for float32 models of up to 1 GiB only). An adapter is
trained in float32: weight, gradient and AdamW's moments, 16 bytes a parameter. Caches of keys and values
may take 40 % of what the weights leave free (`models.room_on`). Activations of a training pass are recomputed:
each layer's input, and what one layer keeps (`kept_bytes`, which tests/test_gpu_memory.py compares with torch).
A pass has at least one whole text; otherwise 16,384 tokens if more than 24 GiB are free, else 4,096.

*SkyRL 0.4.0*, read: Megatron holds frozen weights in bfloat16, divided by tensor and expert parallelism;
FSDP in float32, divided by the GPUs (`bf16=inference_only_init` in workers/fsdp/fsdp_worker.py). An adapter takes
18 bytes a parameter (Megatron-LM, distributed optimizer: 6 + 12 / data parallel ranks at best). Activations: each
layer's input, 34 bytes a token and hidden unit for the layer that is recomputed (Korthikanti et al. 2022,
arXiv:2205.05198, without the attention matrix), its routed copies, and 1,024 positions of logits. vLLM holds weights
in bfloat16 and fills the rest of `gpu_memory_utilization` with its cache, from which 5 GB are taken here for
graphs and activations. Sizes of models are those of their config.json.

Not covered: buffers of NCCL, fragmentation (leave a tenth free), memory of the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.common import options, show

GB = 1e9
CARDS_GB = (24, 48, 80, 141)
CONTEXT_GB = 1.0
"""What CUDA and its libraries take of a GPU."""
CACHE_SHARE = 0.4
LARGE_FREE = 24 * 2**30
HEAD_GB = 0.6
"""Logits of 128 MiB at once, with their copies and gradients."""
UTILISATION, VLLM_GB = 0.6, 5.0


@dataclass(frozen=True)
class Dense:
    """A model of the family Qwen3. The head is tied to the embeddings where `tied`."""

    name: str
    layers: int
    hidden: int
    inner: int
    queries: int
    keys: int = 8 * 128
    vocabulary: int = 151_936
    tied: bool = False

    @property
    def matrices(self) -> list[tuple[int, int]]:
        """In and out of a layer's linear layers."""
        hidden, inner, queries, keys = self.hidden, self.inner, self.queries, self.keys
        attention = [(hidden, queries), (hidden, keys), (hidden, keys), (queries, hidden)]
        return [*attention, (hidden, inner), (hidden, inner), (inner, hidden)]

    @property
    def parameters(self) -> int:
        layer = sum(rows * columns for rows, columns in self.matrices)
        norms = 2 * self.hidden + 2 * 128
        embeddings = self.vocabulary * self.hidden * (1 if self.tied else 2)
        return embeddings + self.layers * (layer + norms) + self.hidden

    def adapter(self, rank: int) -> int:
        """Parameters of an adapter on all linear layers and the head."""
        layer = sum(rows + columns for rows, columns in self.matrices)
        return rank * (self.layers * layer + self.hidden + self.vocabulary)

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys and values a token, bfloat16."""
        return 2 * 2 * self.layers * self.keys

    def kept_bytes(self, rank: int) -> int:
        """Bytes a token that a layer of `localtinker.modules` keeps for its backward pass. The term of an adapter
        is computed in float32, so each of the seven inputs is kept in it."""
        attention = 12 * self.queries + 8 * self.keys
        return 28 * self.hidden + 10 * self.inner + attention + 28 * rank

    def pass_bytes(self, rank: int) -> int:
        """Bytes a token of a training pass: inputs of all layers, one layer, and its widest results in float32."""
        return 2 * self.hidden * self.layers + self.kept_bytes(rank) + 12 * self.inner


FAMILY = (
    Dense("0.6B", 28, 1024, 3072, 2048, tied=True),
    Dense("1.7B", 28, 2048, 6144, 2048, tied=True),
    Dense("4B", 36, 2560, 9728, 4096, tied=True),
    Dense("8B", 36, 4096, 12288, 4096),
    Dense("14B", 40, 5120, 17408, 5120),
    Dense("32B", 64, 5120, 25600, 8192),
)


def free_bytes(card_gb: float, *models: Dense) -> float:
    """Return what the weights of `models` leave free of a GPU."""
    return (card_gb - CONTEXT_GB) * GB - sum(2 * model.parameters for model in models)


def longest_text(student: Dense, free: float, rank: int) -> int:
    """Return the number of tokens of a training pass that fits beside full caches; 0 if none fits."""
    room = (1 - CACHE_SHARE) * free - 16 * student.adapter(rank) - HEAD_GB * GB
    tokens = int(room / student.pass_bytes(rank))
    least = 16_384 if free > LARGE_FREE else 4_096
    return tokens if tokens >= least else 0


def embedded_rows(rank: int) -> Iterator[tuple[str, ...] | None]:
    """Yield, for each GPU, the largest student alone and the largest beside the next larger model as its teacher."""
    for card in CARDS_GB:
        pairs = [(student,) for student in FAMILY]
        taught = list(pairwise(FAMILY))
        for choices in (pairs, taught):
            fits = [
                (models, free, tokens)
                for models in choices
                if (tokens := longest_text(models[0], free := free_bytes(card, *models), rank))
            ]
            models, free, tokens = fits[-1]
            names = [model.name for model in models]
            cached = int(CACHE_SHARE * free / models[0].cache_bytes)
            yield str(card), *names, *[""] * (2 - len(names)), f"{tokens:,}", f"{cached:,}"
        yield None


@dataclass(frozen=True)
class Sharded:
    """A model on several GPUs: parameters (all, and those of routed experts), those of its adapter of rank 1 on
    everything but the experts and on the experts of a layer with one adapter, and sizes for activations and caches."""

    name: str
    parameters: float
    experts: float
    adapter: float
    layers: int
    hidden: int
    routed: int
    """Bytes a token of what the chosen experts receive and return, bfloat16."""
    cache_bytes: int
    key_heads: int
    vocabulary: int

    def trainer_gb(self, tensor: int, expert: int, rank: int, text: int) -> float:
        """GB a GPU of Megatron, with the activations of one text."""
        weights = 2 * ((self.parameters - self.experts) / tensor + self.experts / expert)
        layers = (2 * self.layers + 34) * self.hidden * text / tensor
        logits = 12 * 1024 * self.vocabulary / tensor
        total = weights + 18 * rank * self.adapter + layers + self.routed * text + logits
        return total / GB

    def sampler(self, tensor: int, card_gb: float) -> tuple[float, int]:
        """GB of weights a GPU of vLLM, and tokens that its cache holds. A key head is on at least one GPU."""
        weights = 2 * self.parameters / tensor / GB
        room = UTILISATION * card_gb - weights - VLLM_GB
        token = self.cache_bytes / min(tensor, self.key_heads)
        return weights, max(0, int(room * GB / token))


LARGE = FAMILY[3]
DENSE_8B = Sharded(
    "Qwen3-8B", LARGE.parameters, 0, LARGE.adapter(1), LARGE.layers, LARGE.hidden, 0,
    LARGE.cache_bytes, 8, LARGE.vocabulary,
)  # fmt: skip
# 40 layers, 10 of them with full attention (2 key heads of 256); 256 experts of 512, 8 of them a token.
MOE_35B = Sharded(
    "Qwen3.6-35B-A3B", 34.66e9, 40 * 256 * 3 * 2048 * 512, 1.40e6 + 40 * 5632, 40, 2048,
    2 * 8 * (2 * 2048 + 3 * 512), 2 * 2 * 10 * 2 * 256, 2, 248_320,
)  # fmt: skip
LAYOUTS = (
    # model, GPUs that train, tensor and expert parallel, GPUs a sampler, GB of a GPU
    (DENSE_8B, 1, 1, 1, 1, 80),
    (MOE_35B, 2, 2, 2, 2, 80),
    (MOE_35B, 4, 2, 4, 4, 80),
    (MOE_35B, 8, 2, 8, 8, 80),
)
WEIGHTS = (
    # model, billions of parameters, bytes of each, GPUs, what for, GB of a GPU
    ("Qwen3.5-122B-A10B", 122, 2, 8, "8 for a teacher", 80),
    ("Qwen3.5-397B-A17B", 397, 2, 8, "8 for a teacher", 141),
    ("the same in FP8", 397, 1, 8, "8 for a teacher", 80),
    ("Qwen3.5-397B-A17B", 397, 2, 32, "32 of 64 train", 80),
    ("Qwen3.5-397B-A17B", 397, 2, 16, "32 of 64 sample, by 16", 80),
)
"""Models whose other sizes are not known here."""


def skyrl_rows(rank: int, text: int) -> Iterator[tuple[str, ...] | None]:
    for model, train, tensor, expert, sample, card in LAYOUTS:
        trains = model.trainer_gb(tensor, expert, rank, text)
        weights, cached = model.sampler(sample, card)
        yield (
            model.name,
            f"{train} + {sample}",
            str(card),
            f"{trains:.0f}",
            f"{weights:.0f}",
            f"{cached:,}",
        )
    yield None
    for name, billions, size, gpus, what, card in WEIGHTS:
        share = f"{size * billions / gpus:.0f}"
        columns = (share, "") if "train" in what else ("", share)
        yield name, what, str(card), *columns, ""


def main() -> None:
    args = options(__doc__, rank=32, text=16384).parse_args()
    show(
        f"embedded service, bfloat16, rank {args.rank}: the largest models of Qwen3",
        ("GB", "student", "teacher", "longest text", "tokens in caches"),
        embedded_rows(args.rank),
    )
    show(
        f"SkyRL, rank {args.rank}, texts of {args.text:,} tokens",
        (
            "model",
            "GPUs: train + sample",
            "GB",
            "trainer GB",
            "sampler's weights GB",
            "tokens in cache",
        ),
        skyrl_rows(args.rank, args.text),
    )


if __name__ == "__main__":
    main()
