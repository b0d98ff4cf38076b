# shellcheck shell=sh disable=SC2086
# The functions of the papers' study.sh. Each sources this file and passes its arguments, such as --dry-run, to every training.
# A finished run is not run again and an interrupted one is resumed, so a study can be stopped and started again.
#
#   RECUR_DATA     the folder of the data
#   STUDY_OUTPUT   the folder of runs and tables; default: runs/studies
#   CLAIMS         the claims to run, by number; default: all
#
# Options, such as --dry-run or --device, go to every training, before what the claim sets. Trainings are in fp32 unless --precision
# says otherwise. Options and paths have no spaces, so the lists of options below need no quotes.
set -eu
case " $* " in *" --help "*) for each in "$0" "$(dirname "$0")/../study.sh"; do sed -n '/^#/!q; /^#!/d; /shellcheck/d; s/^# \{0,1\}//p' "$each"; done && exit ;; esac
: "${RECUR_DATA:?names no folder of data}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
studies=${STUDY_OUTPUT:-runs/studies}
output=$studies/$paper
rates="0.0003 0.001 0.003" ladder="0.0001 0.0003 0.001 0.003 0.01 0.03 0.1"
factors= # of the learning rate of scalars, such as TransJect's alpha; a list is searched beside the rates
search_seeds="1 2"
seeds="11 12 13 14 15"
size="--set encoder.num_layers=4 --set encoder.hidden_size=128"
training=finetune section=finetuning split=test # `treebank` sets others
factor=default pooling=mean tried=
options="--precision fp32 $*"
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

# search NAME ARGUMENT...: train at each of the `rates` with each of the `search_seeds`, and set `rate` to the one with the best mean
# dev score. While that is the lowest or the highest, the next one of the `ladder` is tried too. Each of the `factors` has such a
# search of its own, and `factor` is set to the best one. A dry run does not know them, and shows the last ones.
search() {
    name=$1 tried=
    shift
    for factor in ${factors:-default}; do
        low=${rates%% *} high=${rates##* }
        for rate in $rates; do try "$@"; done
        while ! is_dry; do
            rate=$(best "$name/$factor" learning_rate)
            case $rate in
                "$low") rate=$(beside "$low" 1) low=$rate ;;
                "$high") rate=$(beside "$high" 2) high=$rate ;;
                *) rate= ;;
            esac
            if [ -z "$rate" ]; then break; fi
            try "$@"
        done
    done
    if is_dry; then rate=$high && return; fi
    rate=$(best "$name" learning_rate)
    if [ -n "$factors" ]; then factor=$(best "$name" scalar_lr_factor); fi
    echo "$name: learning rate $rate, factor of scalars $factor" >&2
}

# A rate with which a training diverges (exit code 6) is not among those that `best` compares. `tried` lists each, with its factor.
try() {
    if [ "$factor" = default ]; then tried="$tried $rate"; else tried="$tried $rate:$factor"; fi
    for seed in $search_seeds; do
        run "search/$name/$factor/$rate/$seed" "$@" || given_up $?
    done
}

given_up() {
    if [ "$1" -ne 6 ]; then exit "$1"; fi
    echo "$name: a training diverges at the learning rate $rate" >&2
    rm -r "${output:?}/search/$name/$factor/$rate"
}

# run FOLDER ARGUMENT...: train with the `rate`, the `factor` and the `seed`.
run() {
    folder=$1
    shift
    if [ "$factor" != default ]; then set -- "$@" --set $section.scalar_lr_factor="$factor"; fi
    recur $training $options "$@" --learning-rate "$rate" --seed "$seed" --output "$output/$folder" --resume
}

# best NAME KEY: the value of a key in the runs of a search with the best mean dev score.
best() {
    recur compare "$output/search/$1" --json --quiet |
        "$python" -c 'import json, sys; print(json.load(sys.stdin)["groups"][0]["values"][sys.argv[1]])' $section.$2
}

# beside RATE SIDE: the rate before (1) or after (2) this one on the `ladder`; nothing at its end.
beside() {
    echo " $ladder " | sed -n "s/.* \([0-9.]*\) $1 \([0-9.]*\) .*/\\$2/p"
}

# repeat NAME ARGUMENT...: train with the `rate` and the `factor` that a search has set, and each seed. NAME.rates gets what the search
# has tried.
repeat() {
    name=$1
    shift
    if ! is_dry && [ -n "$tried" ]; then keep "$output/$name.rates" echo $tried; fi
    for seed in $seeds; do run "$name/$seed" "$@"; done
}

# lists NAME ENCODER ARGUMENT...: train on nested lists, 10,000 rows of listops-mini, with the `pooling`, mean or max. The papers
# share these runs.
lists() {
    list=$1 encoder=$2
    shift 2
    own=$output
    output=$studies/listops-$pooling
    rows="--preset $encoder-listops-mini $size --set data.train_share=0.5 --set ensemble=null --set pooling=$pooling --epochs 3 $*"
    search "$list" $rows
    repeat "$list" $rows
    output=$own
}

# listops ENCODER...: train each on nested lists, under its own name.
listops() {
    for each in "$@"; do lists "$each" "$each"; done
}

# treebank: let the functions train language models: 460,800 tokens of the Penn Treebank, four layers.
# Searches read the valid text, and the runs that are compared the test text, once, after the last step.
treebank() {
    training=pretrain section=pretraining split=dev # the test text is the dev text of the runs that are compared
    ptb="--data $RECUR_DATA --set data.max_length=64 --set pretraining.batch_size=8 --set pretraining.max_steps=900"
    ptb_test="--set data.files.dev=$RECUR_DATA/ptb/ptb.test.txt"
}

# table NAME CLAIM MARGIN RUNS...: compare the runs on the test rows. The claim is on the first ones, against each of the others: that
# they are better, as good or alike. The margin is half of the difference that the paper has, and 1 point at most.
table() {
    if is_dry; then return; fi
    name=$1 what="$2 $3 $4"
    shift 3
    mkdir -p "$output"
    recur compare "$@" --split $split --output "$output/$name.json" --overwrite --quiet
    echo "$what" > "$output/$name.claim"
    recur compare "$@" --split $split
}

# diagnose NAME RUNS SPLIT: write the diagnosis of the run of each seed in the folder RUNS.
diagnose() {
    if is_dry; then return; fi
    for seed in $seeds; do keep "$output/$1-$seed.json" recur eval "$2/$seed" --split "$3" --diagnose --json; done
}

# summary: print the tests of the paper's claims, with Holm's correction over all that were run.
summary() {
    if [ -z "$claimed" ]; then echo "$paper has no claim '$CLAIMS'; CLAIMS has numbers with spaces between them" >&2 && exit 2; fi
    if is_dry; then return; fi
    "$python" "$(dirname "$0")/../summary.py" "$output"
}
