"""Tinker's protocol on this machine: a server of transformers models for the unmodified SDK 0.38, on a CPU or a
GPU, and tests of any server of the protocol.

The commands are `localtinker serve-tinker` and `localtinker check-service`. Other programs may use:

    process     LocalTinker: the server as a child process; KeptTinker: restarted when it dies; Bridge, KeptBridge
    bridge      recognise: which engine answers at a URL; capabilities: what an engine lacks
    losses      LOSSES and policy_losses: names, inputs and formulas; `loss` registers a further one
    errors      LocalTinkerError and its subclasses, with a message and a hint for the user
    client      for a client of any server: failures (what an error of the SDK means), requests (without
                retries), session (credentials, closing) and weights (list, delete and download)
    certify     bench.Server and examiner.examine: the cases of `check-service`
    registry    live_checkpoints: saved weights of a state folder, read-only
    settings    Settings and context_of              devices     device_for
    lora        adapter files in peft's format       cli, quiet  the commands; silent loggers

Importing `localtinker`, `localtinker.losses` or `localtinker.errors` loads neither torch nor the SDK. The other
modules are the server:

    __main__.py  entry point of the process       http_server.py  sockets and server loop
    app.py        HTTP routes                     listing.py   routes that list and download saved weights
    routing.py    keys, error answers, downloads  checks.py    checks of tokens and batches; both also of the bridge
    service.py    request handling                requests.py  validation: a bad request gets a 4xx that names the field
    wire.py       the SDK's protobuf <-> numpy    futures.py   pending answers and the long poll
    registry.py   persistent state: SQLite and adapter files
    dispatch.py   load balancing over sampling processes, retries when one dies
    template.py   the process they are forked from
    engine.py     the compute thread              trainer.py   training clients: passes, AdamW, saving, parking on disk
    generation.py the sampling loop and process   lora.py      adapters on a frozen base
    samplers.py   weights ready to sample         devices.py   device, threads, memory allocation
    batching.py   continuous and lockstep batches kv_cache.py  key-value cache of a running batch
    decoder.py    lean Llama/Qwen forward pass    packing.py   shared prefixes, computed once
    sampling.py   options, seeds, the next token  scoring.py   log-probabilities of prompts
    dense_training.py  hand-written gradients for larger models on a CPU
    modules.py    Llama, Qwen2, Qwen3 for torch   models.py    base models: loading and capabilities

Limits, compared with the cloud:

- LoRA only, with alpha 32 for every rank; no full fine-tuning. Embeddings, and experts that transformers
  fuses into one tensor, stay frozen. The optimizer is AdamW; no Dimuon.
- Losses: cross_entropy, importance_sampling, ppo, gspo, cispo, dro. No stable_reinforce: its formula is not
  published. Custom losses run on the client, as the SDK does it (`forward_backward_custom`, `create_custom_loss`).
  A loss is never uploaded: this server tells the SDK so (`custom_loss_server_side`), and answers an upload
  (`POST /create_custom_loss`) with 400, because it runs no operations that a client names.
- Text only. For models of 64 MiB or more, texts with a common prefix share its computation within a pass;
  no prefix is cached for later requests. `prompt_cache_hit_tokens` counts prompts that are computed for another
  request of the same pass. `prompt_logprobs_last_n` saves the head's work, not the body's.
- One compute thread, one device, no tensor parallelism. Training passes run one after the other. Small
  models on the CPU sample and score in separate processes. Other models do so on the compute thread, where
  a training pass delays the samples of other clients. Models outside the Llama, Qwen2 and Qwen3 families
  sample through transformers, which is slower: only rows of equal prompt length share a batch.
- A seed makes a sample repeatable up to rounding, which depends on the rest of the batch; only
  deterministic mode guarantees the same bits. The samples of one seeded request differ from each other (in
  the cloud they are identical).
- `inflight` sampling clients are snapshots, which their contract allows. Stability records are not kept.
- A crash loses a training client's unsaved weights and gradients, but no checkpoint, run, session or
  sampler. An answer that is never collected is kept for an hour; one that was collected or cancelled, for
  half a minute.
- One user, one key: no projects, organisations, billing, audit log or access tokens; `public` is a flag without effect.
  Not served: session search, session traces, retrieve_futures.
"""

OPEN = (
    "bridge",
    "certify",
    "cli",
    "client",
    "devices",
    "errors",
    "lora",
    "losses",
    "process",
    "quiet",
    "registry",
    "settings",
)
"""The modules that other programs may import."""
