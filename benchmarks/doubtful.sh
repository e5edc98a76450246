#!/usr/bin/env bash
# Trains the demo on harnesses that pay for wrong answers (weak_harness.py), with `learning.doubtful` set to keep, mask and zero; docs/results.md.
set -euo pipefail
cd "$(dirname "$0")/.."
weak() { PYTHONPATH=. rtl-distill train demo --set run.name=$1 --set problems.sources.0.kind=benchmarks.weak_harness:WeakStarter --set problems.sources.0.train=208 \
    --set problems.sources.0.heldout=32 --set curriculum.problems_per_step=16 --set sampling.group_size=12 --set evaluation.every=100 \
    --set evaluation.teacher=false "${@:2}"; }
for seed in 0 1 2; do for mode in keep mask zero; do
    weak $mode-$seed --set run.seed=$seed --set run.epochs=2 --set learning.doubtful=$mode --set learning.doubtful_share=2
    PYTHONPATH=. rtl-distill grade audit $mode-$seed --purpose train --cycles 2000 --parameters 2
    rtl-distill query --run $mode-$seed "SELECT avg((result = 'different')::INT) FROM audits a JOIN verdicts v USING (rollout) WHERE a.run = \$run
        AND result != 'unknown' AND step >= (SELECT .75 * (max(step) + 1) FROM steps WHERE run = \$run)"
done; done
