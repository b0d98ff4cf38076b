#!/bin/sh
# Which encoders learn a rule of order, and keep it on texts two to five times as long? RSA's claim on regular languages (Huang et al.,
# ICLR 2023) is one of the questions. presets/papers/README.md has the rules and the results; ../study.sh explains the variables.
paper=recurrence
RECUR_DATA=${RECUR_DATA:-none} # all rows are generated
. "$(dirname "$0")/../study.sh"

# Two layers, because recall takes two steps of attention, and 100,000 parameters. All read from left to right, and the last token
# answers, so no encoder has a second direction that cannot help.
size="--set encoder.num_layers=2 --match-parameters 100k --set encoder.dropout=0 --set ensemble=null --set finetuning.linear_baseline=false
    --epochs 5"
search_seeds=1

# The state of `rnn` and `lstm` passes through a matrix and tanh at every token; that of `mingru`, `s4d`, `linear-transformer` and
# `gated-linear-attention` changes linearly, with gates or without. `transformer`, `rotary` and `starsaber` have no state; `rsa` has
# attention with recurrence matrices.
encoders="rnn lstm mingru s4d linear-transformer gated-linear-attention rsa starsaber transformer rotary"
free="--set encoder.window=null --set encoder.stable=false --set encoder.bidirectional=false"
attention="--set encoder.causal=true --set encoder.norm=pre --set encoder.num_heads=4"

# keys ENCODER TASK: the preset of an encoder of the study, and its keys.
keys() {
    case $1 in
        rnn | lstm) echo "--preset truncated-$1-$2 $free" ;;
        rotary) echo "--preset transformer-$2 $attention --set encoder.position=rotary" ;;
        transformer | rsa | linear-transformer) echo "--preset $1-$2 $attention" ;;
        *) echo "--preset $1-$2 --set encoder.causal=true" ;;
    esac
}

# task NAME: train the linear model once, and each encoder with all seeds. A training scores test and test-long.
task() {
    recur finetune $options --preset "linear-$1" --output "$output/$1/linear/11" --resume
    for encoder in $encoders; do
        search "$1/$encoder" $(keys "$encoder" "$1") $size
        repeat "$1/$encoder" $(keys "$encoder" "$1") $size
    done
}

# language NAME: a task of accepting strings, and RSA's claim on it.
language() {
    task "$1"
    table "$1" better 1 "$output/$1/rsa" "$output/$1/transformer"
}

# 1. One bit of state. 2. Two bits.
if claim 1; then language parity; fi
if claim 2; then language tomita-5; fi

# 3. Memory by content. 4. Memory by position.
if claim 3; then task associative-recall; fi
if claim 4; then task recall-distance; fi

if ! is_dry; then "$python" "$(dirname "$0")/lengths.py" "$output"; fi
summary
