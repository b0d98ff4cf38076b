#!/bin/sh
# Claims of stable recurrent models (Miller & Hardt, ICLR 2019). presets/papers/README.md has the rules and the results; ../study.sh
# explains the variables.
paper=stable-rnn
. "$(dirname "$0")/../study.sh"

tnews="--train $RECUR_DATA/tnews/train.json --set encoder.num_layers=1 --set encoder.hidden_size=128 --set data.train_share=0.208
    --set data.extra_rows=[] --set ensemble=null --epochs 3"
test="--test $RECUR_DATA/tnews/dev.json"

# models ENCODER WINDOW...: train the stable and the free model with each window, at the rate of the whole texts.
models() {
    encoder=$1
    shift
    for stable in true false; do
        kind="--preset $encoder-tnews $tnews --set encoder.stable=$stable"
        search "$encoder-$stable" $kind --set encoder.window=null
        for window in "$@"; do
            repeat "$encoder/$stable-$window" $kind $test --set "encoder.window=$window"
        done
    done
}

# 1. The stable RNN loses nothing (section 4). 2. Its accuracy closes in on that of the whole texts as the window grows (section 3).
if claim 1; then
    models truncated-rnn null 2 4 8 16
    table 1-rnn good 0.5 "$output/truncated-rnn/true-null" "$output/truncated-rnn/false-null"
    for stable in true false; do
        table "2-rnn-windows-$stable" alike 0.5 "$output/truncated-rnn/$stable-null" "$output/truncated-rnn/$stable-2" \
            "$output/truncated-rnn/$stable-4" "$output/truncated-rnn/$stable-8" "$output/truncated-rnn/$stable-16"
    done
fi

# 3. The same of the LSTM.
if claim 3; then
    models truncated-lstm null 2 8
    table 3-lstm good 0.5 "$output/truncated-lstm/true-null" "$output/truncated-lstm/false-null"
    for stable in true false; do
        table "3-lstm-windows-$stable" alike 0.5 "$output/truncated-lstm/$stable-null" "$output/truncated-lstm/$stable-2" \
            "$output/truncated-lstm/$stable-8"
    done
fi

# 4. As claims 1 and 2, by perplexity: the Penn Treebank, whole windows of 64 tokens and the last 2 and 8 of them.
if claim 4; then
    treebank
    for stable in true false; do
        kind="--preset truncated-rnn-ptb $ptb --set encoder.num_layers=1 --set encoder.hidden_size=128 --set encoder.stable=$stable"
        search "ptb/$stable" $kind --set encoder.window=null
        for window in null 2 8; do
            repeat "ptb/$stable-$window" $kind $ptb_test --set "encoder.window=$window"
        done
        table "4-treebank-windows-$stable" alike 1 "$output/ptb/$stable-null" "$output/ptb/$stable-2" "$output/ptb/$stable-8"
    done
    table 4-treebank good 1 "$output/ptb/true-null" "$output/ptb/false-null"
fi

# 5. A window changes a stable model and its training little, and an unstable one much (section 3, figure 1): Gaussian instances.
if claim 5 && ! is_dry; then keep "$output/5-gaussian.md" "$python" "$(dirname "$0")/gaussian.py"; fi

# 6. The free RNN is stable on the text, though its W is not (section 4): the runs of claim 4.
if claim 6; then
    for stable in true false; do diagnose "6-diagnosis/$stable" "$output/ptb/$stable-null" dev; done
fi

summary
