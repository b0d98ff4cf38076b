#!/bin/sh
# Claims of StarSaber (Xu, Hu & Tang). presets/papers/README.md has the rules and the results; ../study.sh explains the variables.
paper=starsaber
. "$(dirname "$0")/../study.sh"

tnews="--train $RECUR_DATA/tnews/train.json $size --set data.train_share=0.208 --set data.extra_rows=[]
    --set ensemble=null --set finetuning.epochs=3"
ocnli="--train $RECUR_DATA/ocnli/train.50k.json $size --set data.train_share=0.22 --set ensemble=null --epochs 3"
tnews_test="--test $RECUR_DATA/tnews/dev.json"
ocnli_test="--test $RECUR_DATA/ocnli/dev.json"

search tnews/starsaber --preset starsaber-tnews $tnews
starsaber=$rate starsaber_tried=$tried
repeat tnews/starsaber --preset starsaber-tnews $tnews $tnews_test

# 1. As good as ReZero of equal depth, at a third of its parameters: TNEWS.
if claim 1; then
    search tnews/rezero --preset rezero-tnews $tnews
    repeat tnews/rezero --preset rezero-tnews $tnews $tnews_test
    table 1-equal-depth good 0.35 "$output/tnews/starsaber" "$output/tnews/rezero"
    search tnews/rezero-narrow --preset rezero-tnews $tnews --set encoder.hidden_size=72
    repeat tnews/rezero-narrow --preset rezero-tnews $tnews $tnews_test --set encoder.hidden_size=72 # 252,523 parameters
    table 1-equal-parameters good 0.35 "$output/tnews/starsaber" "$output/tnews/rezero-narrow"
    search tnews/rezero-shallow --preset rezero-tnews $tnews --set encoder.num_layers=1
    repeat tnews/rezero-shallow --preset rezero-tnews $tnews $tnews_test --set encoder.num_layers=1 # 200 k, and the same embedding
    table 1-equal-width good 0.35 "$output/tnews/starsaber" "$output/tnews/rezero-shallow"
    rate=$starsaber tried=$starsaber_tried
    repeat tnews/starsaber-longer --preset starsaber-tnews $tnews $tnews_test --set finetuning.epochs=7
    table 1-equal-time good 0.35 "$output/tnews/starsaber-longer" "$output/tnews/rezero"
fi

# 2. Without direct paths from the embeddings it is worse: table 7. Five layers have about the parameters of four with them.
if claim 2; then
    indirect="--preset starsaber-tnews $tnews --set encoder.direct_path=false --set encoder.num_layers=5"
    search tnews/indirect $indirect
    repeat tnews/indirect $indirect $tnews_test
    table 2-direct-paths better 0.35 "$output/tnews/starsaber" "$output/tnews/indirect"
fi

# 3. With sine positions and one matrix for both sides it is worse, though it has twice the layers: table 6.
if claim 3; then
    for scale in 1 null; do # as they are, and with norm 1 (ours)
        sinusoidal="--preset starsaber-tnews $tnews --set encoder.position=sinusoidal --set encoder.num_layers=8
            --set encoder.position_scale=$scale"
        search "tnews/sinusoidal-$scale" $sinusoidal
        repeat "tnews/sinusoidal-$scale" $sinusoidal $tnews_test
    done
    table 3-sine-positions better 0.35 "$output/tnews/starsaber" "$output/tnews/sinusoidal-1" "$output/tnews/sinusoidal-null"
fi

# 4. Gates do not help at equal parameters: table 5. Two gated layers have the parameters of four without gates.
if claim 4; then
    search tnews/gated --preset gated-starsaber-tnews $tnews --set encoder.num_layers=2
    repeat tnews/gated --preset gated-starsaber-tnews $tnews $tnews_test --set encoder.num_layers=2
    table 4-gates good 0.35 "$output/tnews/starsaber" "$output/tnews/gated"
fi

# 5. As claim 1, on pairs: OCNLI.
if claim 5; then
    search ocnli/starsaber --preset starsaber-ocnli $ocnli
    repeat ocnli/starsaber --preset starsaber-ocnli $ocnli $ocnli_test
    search ocnli/rezero --preset rezero-ocnli $ocnli
    repeat ocnli/rezero --preset rezero-ocnli $ocnli $ocnli_test
    table 5-pairs good 0.35 "$output/ocnli/starsaber" "$output/ocnli/rezero"
fi

# 6. A deeper StarSaber is better: 2, 4 and 8 layers.
if claim 6; then
    for layers in 2 8; do
        search "tnews/layers-$layers" --preset starsaber-tnews $tnews --set encoder.num_layers=$layers
        repeat "tnews/layers-$layers" --preset starsaber-tnews $tnews $tnews_test --set encoder.num_layers=$layers
    done
    table 6-depth-4 better 0.35 "$output/tnews/starsaber" "$output/tnews/layers-2"
    table 6-depth-8 better 0.35 "$output/tnews/layers-8" "$output/tnews/starsaber"
fi

# 7. Pre-training on the task's own text helps (section 4): two passes over all texts of TNEWS, of the test rows too, without labels.
if claim 7; then
    own=$output/tnews/own-text
    recur pretrain $options --preset starsaber-tnews --data "$RECUR_DATA" $size --epochs 2 --seed 1 \
        --output "$own" --resume
    if ! is_dry; then
        search tnews/pretrained --preset starsaber-tnews $tnews --init "$own"
        repeat tnews/pretrained --preset starsaber-tnews $tnews $tnews_test --init "$own"
    fi
    table 7-own-text better 0.35 "$output/tnews/pretrained" "$output/tnews/starsaber"
fi

# 8. One layer that is iterated until no state moves (section 3.2) is worse than layers of their own.
if claim 8; then
    tied="--preset starsaber-tnews $tnews --set encoder.tied=true --set encoder.num_layers=null"
    search tnews/tied $tied
    repeat tnews/tied $tied $tnews_test
    table 8-tied better 0.35 "$output/tnews/starsaber" "$output/tnews/tied"
fi

# 9. A learned alpha is better than one of 0, with which the layers do nothing, and as good as one of 1 (section 5.1).
if claim 9; then
    for alpha in 0 1; do
        fixed="--preset starsaber-tnews $tnews --set encoder.alpha=fixed --set encoder.alpha_init=$alpha"
        search "tnews/alpha-$alpha" $fixed
        repeat "tnews/alpha-$alpha" $fixed $tnews_test
    done
    table 9-alpha-0 better 0.35 "$output/tnews/starsaber" "$output/tnews/alpha-0"
    table 9-alpha-1 good 0.35 "$output/tnews/starsaber" "$output/tnews/alpha-1"
fi

summary
