#!/bin/sh
# Claims of TransJect (Sengupta, Akhtar & Chakraborty, Findings of EMNLP 2023). presets/papers/README.md has the rules and the
# results; ../study.sh explains the variables.
paper=transject
. "$(dirname "$0")/../study.sh"

# 1. Better than the Transformer (tables 1 and 2): nested lists in place of IMDb.
if claim 1; then
    listops transformer transject
    table 1-transformer "$studies/listops/transject" "$studies/listops/transformer"
fi

# 2. Better than ReZero and the orthogonal Transformer (tables 1 and 2).
if claim 2; then
    listops transject rezero orthogonal-transformer
    table 2-peers "$studies/listops/transject" "$studies/listops/rezero" "$studies/listops/orthogonal-transformer"
fi

# 3. It keeps distances (activation factor 1), and has the lowest entropy (figures 1 and 3): the runs of claim 1.
if claim 3 && ! is_dry; then
    for encoder in transject transformer; do
        for seed in $seeds; do
            keep "$output/3-diagnosis/$encoder-$seed.json" recur eval "$studies/listops/$encoder/$seed" --split test --diagnose --json
        done
    done
fi

summary
