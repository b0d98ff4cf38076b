#!/bin/sh
# Claims of the linear Transformer (Katharopoulos et al., ICML 2020). presets/papers/README.md has the rules and the results;
# ../study.sh explains the variables.
paper=linear-transformer
. "$(dirname "$0")/../study.sh"

# 1. Its time a token does not grow with the length (figure 1).
if claim 1 && ! is_dry; then
    keep "$output/1-speed.json" recur bench linear-transformer transformer --layers 4 --hidden-size 128 --batch-size 1 \
        --length 64,128,256,512,1024,2048,4096 --precision fp32 --rounds 5 --no-peers --json
fi

# 2. Its quality is that of softmax attention: nested lists.
if claim 2; then
    listops transformer linear-transformer
    table 2-listops good 0.5 "$studies/listops-mean/linear-transformer" "$studies/listops-mean/transformer"
fi

# 3. The same, by perplexity: the Penn Treebank.
if claim 3; then
    treebank
    for encoder in transformer linear-transformer; do
        search "ptb/$encoder" --preset "$encoder-ptb" $ptb $size
        repeat "ptb/$encoder" --preset "$encoder-ptb" $ptb $ptb_test $size
    done
    table 3-treebank good 1 "$output/ptb/linear-transformer" "$output/ptb/transformer"
fi

summary
