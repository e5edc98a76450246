"""The embedded Tinker service: Tinker's cloud on this machine's CPU or GPU, for the unmodified SDK 0.38.

`LocalTinker` (process.py) starts it as a child process, `KeptTinker` (kept.py) starts it again when it dies, `rtl-distill
serve-tinker` runs it in the foreground. docs/localtinker.md is the user's page.

    app.py        HTTP routes                     requests.py  checks: a bad request gets a 4xx that names the field
    service.py    what each request means         wire.py      the SDK's protobuf messages <-> numpy
    futures.py    promises and the long poll      registry.py  what survives a restart: SQLite and checkpoint files
    dispatch.py   which sampling process gets what, and what when one dies
    template.py   the process that they are forked from
    worker.py     a sampling process              frames.py    what goes over its socket
    downloads.py  an adapter's files, by signed URLs
    engine.py     the compute thread: training    clients.py   training clients, parked on disk when idle
    generation.py what waits and runs             trainer.py   forward, backward, AdamW, save, load
    batching.py   continuous batching             lora.py      adapters on a frozen base
    samplers.py   which batch a row joins         dense_training.py  gradients by hand, for larger models on a CPU
    decoder.py    lean Llama/Qwen forward pass    scoring.py   log-probabilities of prompts
    packing.py    what sequences share, once      kv_cache.py, shared_cache.py  caches of running batches
    attention.py  causal attention on a CPU       (the losses: rtl_core/learning/losses.py)
    modules.py    Llama, Qwen2, Qwen3 for torch   models.py    base models: loading, and what each can do
    lockstep.py   any other transformers model
    sampling.py   options, seeds, the next token  settings.py  how one service runs

Limits, against the cloud:

- LoRA only, alpha 32 for every rank; no full fine-tuning. Experts that transformers fuses into one tensor, and embeddings, stay
  frozen. Optimizer AdamW only, no Dimuon.
- Losses: cross_entropy, importance_sampling, ppo, cispo, dro. Not gspo, stable_reinforce, or custom losses run on the server: the
  SDK runs `forward_backward_custom` and `create_custom_loss` on the client instead.
- Text only: no images, no audio. Prompts that begin alike share their beginning within a batch, for models of 64 MiB or more; nothing is
  kept for later requests. `prompt_logprobs_last_n` saves the head's work, not the body's.
- One compute thread, one device, no tensor parallelism. Training passes run one after the other. Small models on the CPU sample and
  score in processes of their own; other models on the compute thread, where a pass of one client delays samples of others by its
  length. Models outside the Llama, Qwen2 and Qwen3 families sample through transformers itself, rows of one prompt length together,
  which is slower.
- A seed makes a sample repeatable up to the last bits of the arithmetic, which depend on what else is in the batch; only
  deterministic mode promises bits. The samples of one seeded request differ from each other (in the cloud they are identical).
- `inflight` sampling clients are snapshots, which their contract allows. Stability records are not kept.
- What was not saved dies with the process: after a crash a training client's unsaved weights and gradients are gone; checkpoints,
  runs, sessions and samplers are not. An answer that nobody collects is kept for an hour, one that was collected for half a minute.
- One user, one key: no projects, organisations, billing, audit log or access tokens; `public` is a flag without an effect.
  Not served: session search, session traces, retrieve_futures.
"""
