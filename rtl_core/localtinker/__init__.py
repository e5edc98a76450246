"""The embedded Tinker service: Tinker's cloud on this machine's CPU or GPU, for the unmodified SDK 0.38.

`LocalTinker` (process.py) starts it as a child process, `KeptTinker` starts it again when it dies, `rtl-distill
serve-tinker` runs it in the foreground. docs/localtinker.md is the user's page.

    settings.py   how one service runs            __main__.py  the process
    app.py        HTTP routes                     listing.py   those that list and hand out what is kept
    service.py    what each request means         requests.py  checks: a bad request gets a 4xx that names the field
    wire.py       the SDK's protobuf <-> numpy    futures.py   promises and the long poll
    registry.py   what survives a restart: SQLite and the files of adapters
    dispatch.py   which sampling process gets what, and what when one dies
    worker.py     a sampling process              template.py  the process that they are forked from
    engine.py     the compute thread: training    clients.py   training clients, parked on disk when idle
    generation.py what waits and runs             trainer.py   forward, backward, AdamW, save, load
    samplers.py   weights ready to sample         lora.py      adapters on a frozen base
    batching.py   continuous batching             dense_training.py  gradients by hand, for larger models on a CPU
    decoder.py    lean Llama/Qwen forward pass    kv_cache.py  the cache of a running batch
    lockstep.py   any other transformers model    packing.py   what sequences share, once
    sampling.py   options, seeds, the next token  scoring.py   log-probabilities of prompts
    modules.py    Llama, Qwen2, Qwen3 for torch   models.py    base models: loading, and what each can do
    devices.py    device, threads, freed memory   (the losses: rtl_core/learning/losses.py)

Limits, against the cloud:

- LoRA only, alpha 32 for every rank; no full fine-tuning. Experts that transformers fuses into one tensor, and embeddings, stay
  frozen. Optimizer AdamW only, no Dimuon.
- Losses: cross_entropy, importance_sampling, ppo, cispo, dro. Not gspo, stable_reinforce, or custom losses run on the server: the
  SDK runs `forward_backward_custom` and `create_custom_loss` on the client instead.
- Text only: no images, no audio. Texts that are scored or trained on and begin alike share their beginning within a pass, for models of
  64 MiB or more; nothing is kept for later requests. `prompt_logprobs_last_n` saves the head's work, not the body's.
- One compute thread, one device, no tensor parallelism. Training passes run one after the other. Small models on the CPU sample and
  score in processes of their own; other models on the compute thread, where a pass of one client delays samples of others by its
  length. Models outside the Llama, Qwen2 and Qwen3 families sample through transformers itself, rows of one prompt length together,
  which is slower.
- A seed makes a sample repeatable up to the last bits of the arithmetic, which depend on what else is in the batch; only
  deterministic mode promises bits. The samples of one seeded request differ from each other (in the cloud they are identical).
- `inflight` sampling clients are snapshots, which their contract allows. Stability records are not kept.
- What was not saved dies with the process: after a crash a training client's unsaved weights and gradients are gone; checkpoints,
  runs, sessions and samplers are not. An answer that nobody collects is kept for an hour, one that was collected or cancelled for half a minute.
- One user, one key: no projects, organisations, billing, audit log or access tokens; `public` is a flag without an effect.
  Not served: session search, session traces, retrieve_futures.
"""

from __future__ import annotations


class RequestError(Exception):
    """The request cannot be served as sent. Answered at once with `status` and `message`.

    A 5xx is never used for this: the SDK would repeat the request for five minutes, which looks like a hang.
    """

    def __init__(self, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.status = status


class NotFoundError(RequestError):
    """A model, session, sampler, run or checkpoint that this service does not hold."""

    def __init__(self, message: str) -> None:
        super().__init__(message, status=404)


class SamplingError(Exception):
    """A request was in order but could not be sampled; the message says it all."""
