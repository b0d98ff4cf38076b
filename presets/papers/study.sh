# shellcheck shell=sh disable=SC2086
# The functions of the papers' study.sh. Each sources this file and passes its arguments, such as --dry-run, to every training.
# A finished run is not run again and an interrupted one is resumed, so a study can be stopped and started again.
#
#   RECUR_DATA     the folder of the data
#   STUDY_OUTPUT   the folder of runs and tables; default: runs/studies
#   CLAIMS         the claims to run, by number; default: all
#
# In --output, --resume and the options of the commands stand no spaces, so the lists of options below need no quotes.
set -eu
: "${RECUR_DATA:?names no folder of data}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
studies=${STUDY_OUTPUT:-runs/studies}
output=$studies/$paper
rates="0.0003 0.001 0.003"
search_seed=1
seeds="11 12 13 14 15"
size="--set encoder.num_layers=4 --set encoder.hidden_size=128"
options=$*

# claim NUMBER: whether this claim is to be run.
claim() {
    case " ${CLAIMS:-$1} " in *" $1 "*) echo "== $paper, claim $1" >&2 ;; *) return 1 ;; esac
}

# is_dry: whether nothing is to be written.
is_dry() {
    case " $options " in *" --dry-run "*) ;; *) return 1 ;; esac
}

# search NAME ARGUMENT...: train once at each of the `rates`, without test rows, and set `rate` to the one with the best dev score.
# Where that is the lowest or highest, the next one beyond it is tried too.
search() {
    name=$1
    shift
    for rate in $rates; do try "$@"; done
    if is_dry; then return; fi
    rate=$(best)
    case $rate in
        0.0003) rate=0.0001 && try "$@" ;;
        0.003) rate=0.01 && try "$@" ;;
    esac
    rate=$(best)
    echo "$name: learning rate $rate" >&2
}

try() {
    recur finetune "$@" --learning-rate "$rate" --seed $search_seed --output "$output/search/$name/$rate" --resume $options
}

best() {
    recur compare "$output/search/$name" --json --quiet |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["groups"][0]["values"]["finetuning.learning_rate"])'
}

# repeat NAME ARGUMENT...: train at the learning rate `rate` with each seed.
repeat() {
    name=$1
    shift
    for seed in $seeds; do
            recur finetune "$@" --learning-rate "$rate" --seed "$seed" --output "$output/$name/$seed" --resume $options
    done
}

# listops ENCODER...: train each on nested lists, 10,000 rows of listops-mini. The papers share these runs.
listops() {
    own=$output
    output=$studies/listops
    for encoder in "$@"; do
        rows="--preset $encoder-listops-mini $size --set data.train_share=0.5 --set ensemble=null --epochs 3"
        search "$encoder" $rows
        repeat "$encoder" $rows
    done
    output=$own
}

# table NAME RUNS... [OPTION...]: compare the runs on the test rows.
table() {
    if is_dry; then return; fi
    name=$1
    shift
    mkdir -p "$output"
    recur compare "$@" --split test --output "$output/$name.json" --overwrite --quiet
    recur compare "$@" --split test
}

# summary: print all tests of the paper's tables, with Holm's correction over them.
summary() {
    if is_dry; then return; fi
    python3 "$(dirname "$0")/../summary.py" "$output"
}
