#!/bin/sh
# Claims of RSA (Huang et al., ICLR 2023). presets/papers/README.md has the rules and the results; ../study.sh explains the variables.
paper=rsa
. "$(dirname "$0")/../study.sh"

# A matrix in every head, and so at every lag (figure 1d).
heads() { if [ "$1" = rsa ]; then echo "--set encoder.rem_heads=[2,1,1,2,1,1]"; fi; }

ocnli="--train $RECUR_DATA/ocnli/train.50k.json $size --set ensemble=null"
ocnli_test="--test $RECUR_DATA/ocnli/dev.json"

# 1. Better than the Transformer on pairs, and the more so on few rows: 10, 30 and 100 % of 10,000 rows of OCNLI.
if claim 1; then
    for encoder in transformer rsa; do
        search "ocnli/$encoder" --preset "$encoder-ocnli" $ocnli $(heads $encoder) --set data.train_share=0.22 --epochs 3
        repeat "ocnli/$encoder-100" --preset "$encoder-ocnli" $ocnli $ocnli_test $(heads $encoder) --set data.train_share=0.22 --epochs 3
        repeat "ocnli/$encoder-30" --preset "$encoder-ocnli" $ocnli $ocnli_test $(heads $encoder) --set data.train_share=0.066 --epochs 6
        repeat "ocnli/$encoder-10" --preset "$encoder-ocnli" $ocnli $ocnli_test $(heads $encoder) --set data.train_share=0.022 --epochs 12
    done
    for share in 10 30 100; do
        table "1-share-$share" better 0.5 "$output/ocnli/rsa-$share" "$output/ocnli/transformer-$share"
    done
fi

# 2. Better than the Transformer where order matters: nested lists.
if claim 2; then
    listops transformer
    lists rsa rsa $(heads rsa)
    table 2-listops better 0.5 "$studies/listops-mean/rsa" "$studies/listops-mean/transformer"
fi

# 3. A lower perplexity than the Transformer: the Penn Treebank.
if claim 3; then
    treebank
    for encoder in transformer rsa; do
        search "ptb/$encoder" --preset "$encoder-ptb" $ptb $size $(heads $encoder)
        repeat "ptb/$encoder" --preset "$encoder-ptb" $ptb $ptb_test $size $(heads $encoder)
    done
    table 3-treebank better 1 "$output/ptb/rsa" "$output/ptb/transformer"
fi

# 4. A linear RNN is a sum of recurrence encoding matrices (Proposition 1), and the error with fewer of them.
if claim 4 && ! is_dry; then keep "$output/4-linear-rnn.md" "$python" "$(dirname "$0")/linear_rnn.py"; fi

summary
