# shellcheck shell=sh disable=SC2086
# The functions of the papers' study.sh. Each sources this file and passes its arguments, such as --dry-run, to every training.
# A finished run is not run again and an interrupted one is resumed, so a study can be stopped and started again.
#
#   RECUR_DATA     the folder of the data
#   STUDY_OUTPUT   the folder of runs and tables; default: runs/studies
#   CLAIMS         the claims to run, by number; default: all
#
# Options, such as --dry-run or --device, go to every training, before what the claim sets. They and the paths have no spaces, so
# the lists of options below need no quotes.
set -eu
case " $* " in *" --help "*) sed -n '/shellcheck/d; s/^# //p' "$0" "$(dirname "$0")/../study.sh" && exit ;; esac
: "${RECUR_DATA:?names no folder of data}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
studies=${STUDY_OUTPUT:-runs/studies}
output=$studies/$paper
rates="0.0003 0.001 0.003"
search_seed=1
seeds="11 12 13 14 15"
size="--set encoder.num_layers=4 --set encoder.hidden_size=128"
training=finetune section=finetuning split=test # `treebank` sets others
options=$*
claimed=
# The interpreter of `recur`, which has its package.
python=$(dirname "$(readlink -f "$(command -v recur)")")/python3

# claim NUMBER: whether this claim is to be run.
claim() {
    case " ${CLAIMS:-$1} " in *" $1 "*) claimed=$1 && echo "== $paper, claim $1" >&2 ;; *) return 1 ;; esac
}

# is_dry: whether nothing is to be written.
is_dry() {
    case " $options " in *" --dry-run "*) ;; *) return 1 ;; esac
}

# keep FILE COMMAND...: write what a command prints to FILE, when it has ended well.
keep() {
    file=$1
    shift
    mkdir -p "$(dirname "$file")"
    "$@" > "$file.partial"
    mv "$file.partial" "$file"
}

# search NAME ARGUMENT...: train once at each of the `rates`, and set `rate` to the one with the best dev score. Where that is the
# lowest or highest, the next one beyond it is tried too. A dry run does not know it, and shows the last of the `rates`.
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
    recur $training $options "$@" --learning-rate "$rate" --seed $search_seed --output "$output/search/$name/$rate" --resume
}

best() {
    recur compare "$output/search/$name" --json --quiet |
        "$python" -c 'import json, sys; print(json.load(sys.stdin)["groups"][0]["values"][sys.argv[1] + ".learning_rate"])' $section
}

# repeat NAME ARGUMENT...: train at the learning rate `rate` with each seed.
repeat() {
    name=$1
    shift
    for seed in $seeds; do
        recur $training $options "$@" --learning-rate "$rate" --seed "$seed" --output "$output/$name/$seed" --resume
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

# treebank: let the functions train language models: 460,800 tokens of the Penn Treebank, three seeds, four layers.
# Searches read the valid text, and the runs that are compared the test text, once, after the last step.
treebank() {
    training=pretrain section=pretraining split=dev # the test text is the dev text of the runs that are compared
    seeds="11 12 13"
    ptb="--data $RECUR_DATA --set data.max_length=64 --set pretraining.batch_size=8 --set pretraining.max_steps=900 --precision fp32"
    ptb_test="--set data.files.dev=$RECUR_DATA/ptb/ptb.test.txt"
}

# table NAME RUNS...: compare the runs on the test rows. The claim is on the first ones, against each of the others.
table() {
    if is_dry; then return; fi
    name=$1
    shift
    mkdir -p "$output"
    recur compare "$@" --split $split --output "$output/$name.json" --overwrite --quiet
    echo "$1" > "$output/$name.reference"
    recur compare "$@" --split $split
}

# summary: print the tests of the paper's claims, with Holm's correction over all that were run.
summary() {
    if [ -z "$claimed" ]; then echo "$paper has no claim '$CLAIMS'; CLAIMS has numbers with spaces between them" >&2 && exit 2; fi
    if is_dry; then return; fi
    "$python" "$(dirname "$0")/../summary.py" "$output"
}
