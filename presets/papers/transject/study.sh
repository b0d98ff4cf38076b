#!/bin/sh
# Claims of TransJect (Sengupta, Akhtar & Chakraborty, Findings of EMNLP 2023). presets/papers/README.md has the rules and the
# results; ../study.sh explains the variables.
paper=transject
. "$(dirname "$0")/../study.sh"

# 1. Better than the Transformer, ReZero and the orthogonal Transformer (tables 1 and 2): nested lists in place of IMDb.
if claim 1; then
    listops transformer transject rezero orthogonal-transformer
    table 1-listops "$studies/listops/transject" "$studies/listops/transformer" "$studies/listops/rezero" \
        "$studies/listops/orthogonal-transformer"
fi

# 2. It keeps distances (activation factor 1), and has the lowest entropy of the four (figures 1 to 3): the runs of claim 1.
if claim 2 && [ -z "$options" ]; then
    mkdir -p "$output/2-diagnosis"
    for encoder in transject transformer rezero orthogonal-transformer; do
        for seed in $seeds; do
            recur eval "$studies/listops/$encoder/$seed" --split test --diagnose --json > "$output/2-diagnosis/$encoder-$seed.json"
        done
    done
fi

summary
