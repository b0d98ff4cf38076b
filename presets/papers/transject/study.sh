#!/bin/sh
# Claims of TransJect (Sengupta, Akhtar & Chakraborty, Findings of EMNLP 2023). presets/papers/README.md has the rules and the
# results; ../study.sh explains the variables.
paper=transject
. "$(dirname "$0")/../study.sh"

# The paper takes the maximum over time (appendix B.1). Its scalars alpha have a rate of their own.
pooling=max
rates="0.003 0.01"
with_scalars() { factors="3 30" && listops "$@" && factors= && factor=default; }

# 1. Better than the Transformer (tables 1 and 2): nested lists in place of IMDb.
if claim 1; then
    with_scalars transject
    listops transformer
    table 1-transformer better 1 "$studies/listops-max/transject" "$studies/listops-max/transformer"
fi

# 2. Better than ReZero and the orthogonal Transformer (tables 1 and 2).
if claim 2; then
    with_scalars transject rezero
    listops orthogonal-transformer
    table 2-peers better 1 "$studies/listops-max/transject" "$studies/listops-max/rezero" "$studies/listops-max/orthogonal-transformer"
fi

# 3. It keeps distances (activation factor 1), and has the lowest entropy (figures 1 and 3): the runs of claim 1.
if claim 3 && ! is_dry; then
    for encoder in transject transformer; do
        for seed in $seeds; do
            keep "$output/3-diagnosis/$encoder-$seed.json" recur eval "$studies/listops-max/$encoder/$seed" --split test --diagnose --json
        done
    done
fi

summary
