#!/bin/sh
# Claims of TransJect (Sengupta, Akhtar & Chakraborty, Findings of EMNLP 2023). presets/papers/README.md has the rules and the
# results; ../study.sh explains the variables.
paper=transject
. "$(dirname "$0")/../study.sh"

# The paper takes the maximum over time (appendix B.1). Its scalars alpha have a rate of their own.
pooling=max
rates="0.003 0.01"
runs=$studies/listops-$pooling

# with_scalars COMMAND...: let the searches of a command try factors too.
with_scalars() {
    factors="3 30"
    "$@"
    factors= factor=default
}

# 1. Better than the Transformer (tables 1 and 2): nested lists in place of IMDb.
if claim 1; then
    with_scalars listops transject
    listops transformer
    table 1-transformer better 1 "$runs/transject" "$runs/transformer"
fi

# 2. Better than ReZero and the orthogonal Transformer (tables 1 and 2).
if claim 2; then
    with_scalars listops transject rezero
    listops orthogonal-transformer
    table 2-peers better 1 "$runs/transject" "$runs/rezero" "$runs/orthogonal-transformer"
fi

# with_checkpoints ENCODER: train once more as for claim 1, with the first seed, and keep ten checkpoints.
with_checkpoints() {
    listops "$1"
    seed=${seeds%% *}
    run "../listops-$pooling/checkpoints/$1/$seed" $rows --keep-checkpoints --set finetuning.checkpoint_every=47 \
        --set finetuning.keep_checkpoints=20
}

# 3. It keeps distances (activation factor 1), and has the lowest entropy (figures 1 and 3): the runs of claims 1 and 2. How both
# go with accuracy, and the entropy during a training.
if claim 3; then
    for encoder in transject transformer rezero orthogonal-transformer; do
        diagnose "3-diagnosis/$encoder" "$runs/$encoder" test
    done
    with_scalars with_checkpoints transject
    with_checkpoints transformer
    if ! is_dry; then
        keep "$output/3-entropy.md" "$python" "$(dirname "$0")/entropy.py" "$output/3-diagnosis" \
            "$runs/checkpoints/transject/$seed" "$runs/checkpoints/transformer/$seed"
    fi
fi

# 4. It is faster than the Transformer, the more so on long texts: bench measures CPU time.
if claim 4 && ! is_dry; then
    keep "$output/4-speed.json" recur bench transject transformer --layers 4 --hidden-size 128 --batch-size 1 \
        --length 64,128,256,512,1024 --precision fp32 --rounds 5 --no-peers --json
fi

# 5. A learned alpha is better than one of 0, with which the layers do nothing, and one of 1: the weight of an update is
# tanh(alpha) / L. The factor of its rate is so small that alpha stays as it is.
if claim 5; then
    with_scalars listops transject
    for alpha in 0 1; do
        lists "transject-alpha-$alpha" transject --set encoder.alpha_init=$alpha --set finetuning.scalar_lr_factor=1.0e-9
    done
    table 5-alpha better 1 "$runs/transject" "$runs/transject-alpha-0" "$runs/transject-alpha-1"
fi

# 6. Four experts are better than one.
if claim 6; then
    with_scalars listops transject
    with_scalars lists transject-one-expert transject --set encoder.num_experts=1
    table 6-experts better 1 "$runs/transject" "$runs/transject-one-expert"
fi

# 7. Eigenvalues of the text are better than one learned vector (Random-TransJect, tables 1 and 2).
if claim 7; then
    with_scalars listops transject random-transject
    table 7-random better 1 "$runs/transject" "$runs/random-transject"
fi

summary
