#!/bin/sh
# shellcheck disable=SC2086
# Which recurrences track a state? Two layers and 31,150 parameters an encoder, on the word problems of four groups, supervised at each
# position. README.md has the results and the rules, contrasts.txt the tests, which were written before the first run;
# ../study.sh explains the variables, and these:
#
#   TASKS          the tasks, with spaces between them; default: those of the claims
#   ENCODERS       the rows of the table; default: all. The name of another encoder, such as one of a package of your own, is a row too
#   STUDY_RESULTS  the folder of the kept results, one file a cell; a cell that is kept there is not run again.
#                  Default: results, in the folder of the runs
#
# Claims: 1. The rows that are tested, on the four tasks. 2. Controls. 3. Other encoders and other tasks, one seed: shown, not tested.
paper=state
RECUR_DATA=${RECUR_DATA:-none} # all rows are generated
. "$(dirname "$0")/../study.sh"

results=${STUDY_RESULTS:-$output/results}
state=$(dirname "$0")
common="--set encoder.dropout=0 --set ensemble=null --set finetuning.linear_baseline=false --set finetuning.warmup_ratio=0.1"
every="--set finetuning.supervise=every"
rates="0.001 0.003 0.01 0.03"
search_seeds=1

tested="rnn lstm slstm mlstm mingru mingru-signed mamba2 mamba2-signed delta-net delta-net-negative delta-net-negative-2
    gated-delta-net-negative starsaber transformer"
groups="parity s3 modulo-5 a5"
others="rsa linear-transformer gated-linear-attention s4d sine none"
other_tasks="dyck flip-flop s5"

# keys ROW: the preset's encoder and its keys. Its size is 31,150 parameters, to one per cent: where there is a feed-forward network, its
# inner size makes up the number. All read from left to right.
keys() {
    free="--set encoder.window=null --set encoder.stable=false --set encoder.bidirectional=false"
    heads="--set encoder.num_heads=2"
    attention="$heads --set encoder.norm=pre"
    delta="delta-net $heads --set encoder.negative_eigenvalues"
    inner= width=32
    case $1 in
        rnn) encoder="truncated-rnn $free" width=88 ;;
        lstm) encoder="truncated-lstm $free" width=44 ;;
        starsaber) encoder=starsaber width=72 ;;
        slstm) encoder="slstm $heads" inner=124 ;;
        mlstm) encoder="mlstm $heads" inner=151 ;;
        mingru) encoder=mingru inner=188 ;;
        mingru-signed) encoder="mingru --set encoder.signed=true" inner=188 ;;
        mamba2) encoder="mamba2 $heads --set encoder.state_size=16" inner=168 ;;
        mamba2-signed) encoder="mamba2 $heads --set encoder.state_size=16 --set encoder.signed=true" inner=168 ;;
        delta-net) encoder="$delta=false" inner=167 ;;
        delta-net-negative) encoder="$delta=true" inner=167 ;;
        delta-net-negative-2) encoder="$delta=true --set encoder.products=2" inner=130 ;;
        gated-delta-net-negative) encoder="$delta=true --set encoder.gate=scalar" inner=165 ;;
        transformer) encoder="transformer $attention --set encoder.position=rotary" inner=172 ;;
        sine) encoder="transformer $attention" inner=172 ;;
        none) encoder="transformer $attention --set encoder.position=none" inner=172 ;;
        rsa | linear-transformer) encoder="$1 $attention" inner=172 ;;
        gated-linear-attention) encoder="$1 $heads" inner=162 ;;
        s4d) encoder="s4d --set encoder.state_size=16" inner=204 ;;
        *)
            more=$("$python" "$state/cell.py" --size "$1" 31150) || exit 2
            encoder="$1 $more" width=
            ;;
    esac
    case $1 in
        rnn | lstm) ;;
        *) encoder="$encoder --set encoder.causal=true" ;;
    esac
    if [ -n "$inner" ]; then encoder="$encoder --set encoder.feed_forward_size=$inner"; fi
    if [ -n "$width" ]; then encoder="$encoder --set encoder.hidden_size=$width"; fi
    echo "--preset ${encoder%% *}-$2 ${encoder#"${encoder%% *}"} --set encoder.num_layers=2 $common"
}

# best NAME KEY: the rate of a search with the least dev loss. Accuracies tie at 100 %.
best() {
    "$python" "$state/cell.py" --rate "$output/search/$1"
}

# is_tested ROW TASK: whether a contrast is about the cell.
is_tested() {
    awk -v row="$1" -v task="$2" '$1 == task && ($2 == row || $3 == row) { found = 1 } END { exit !found }' "$state/contrasts.txt"
}

# cell ROW TASK OPTION...: search the rate in one pass over the 20,000 rows, a third of the steps, and train with each of the seeds.
cell() {
    row=$1 task=$2 kept=$results/$2/$1.json
    shift 2
    if [ -e "$kept" ]; then return; fi
    own=$(keys "$row" "$task")
    search "$task/$row" $own "$@" --epochs 1
    repeat "$task/$row" $own "$@" --epochs 3
    if ! is_dry; then keep "$kept" "$python" "$state/cell.py" "$output" "$task/$row"; fi
}

# control NAME TASK ARGUMENT...: train once, with the rate of rnn's kind, 0.003.
control() {
    kept=$results/$2/$1.json folder=controls/$2/$1
    shift 2
    if [ -e "$kept" ]; then return; fi
    recur finetune $options "$@" --seed 11 --output "$output/$folder/11" --resume
    if ! is_dry; then keep "$kept" "$python" "$state/cell.py" "$output" "$folder"; fi
}

if claim 1; then
    for task in ${TASKS:-$groups}; do
        for row in ${ENCODERS:-$tested}; do
            seeds="11 12 13"
            if is_tested "$row" "$task"; then seeds="11 12 13 14 15"; fi
            cell "$row" "$task" $every
        done
    done
fi

# The linear model on n-grams; an encoder that keeps its first weights; rows whose labels are shuffled, of which the last position alone
# is supervised, because the others would have the labels of the task.
if claim 2; then
    for task in ${TASKS:-$groups}; do
        control linear "$task" --preset "linear-$task"
        for row in rnn lstm delta-net-negative transformer; do
            control "$row-frozen" "$task" $(keys "$row" "$task") $every --set encoder.freeze=true --learning-rate 0.003 --epochs 3
        done
        for split in train dev test; do
            keep "$output/shuffled/$task.$split.tsv" "$python" "$state/cell.py" --shuffled "$task" $split
        done
        for row in rnn delta-net-negative transformer; do
            control "$row-shuffled" "$task" $(keys "$row" "$task") --train "$output/shuffled/$task.train.tsv" \
                --dev "$output/shuffled/$task.dev.tsv" --test "$output/shuffled/$task.test.tsv" --learning-rate 0.003 --epochs 1
        done
    done
fi

if claim 3; then
    seeds=11
    for task in ${TASKS:-$groups}; do
        for row in ${ENCODERS:-$others}; do cell "$row" "$task" $every; done
    done
    for task in ${TASKS:-$other_tasks}; do
        for row in ${ENCODERS:-$tested $others}; do cell "$row" "$task" $every; done
    done
    for row in ${ENCODERS:-$tested $others}; do cell "$row" recall-size --set data.train_share=0.25; done
fi

if [ -z "$claimed" ]; then echo "$paper has no claim '$CLAIMS'; CLAIMS has numbers from 1 to 3 with spaces between them" >&2 && exit 2; fi
if ! is_dry; then "$python" "$state/table.py" "$results"; fi
