"""The `recur tune` command."""

from recurcli.cli.app import command
from recurcli.process import keep_freed_memory
from recurcli.requests.options import Debug, Json, Quiet
from recurcli.requests.tune import TuneRequest


@command(
    "recur tune --preset starsaber-custom --data reviews.csv --trials 20",
    "recur tune --preset rsa-tnews --range finetuning.learning_rate=1e-4..3e-3:log --range 'pooling=max|mean'",
)
def tune(request: TuneRequest, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Search the settings of a preset for the best dev score.

    It needs Optuna. The first trial is the preset itself. Each trial is a fine-tuning run that reads no test rows. Where the
    preset has an ensemble, or is linear, its score is the log loss of what is kept (the squared error of numbers), or
    finetuning.metric if that is set, on halves of the dev rows that are held out; else it is the encoder's. A trial whose
    encoder's dev metric is below the median of the complete ones at the same share of their steps is pruned, at its second
    evaluation at the earliest. runtime.seed seeds the choice of the settings and each run. The best preset is written to
    best.yaml. Its score chose it, so it is no test score.
    """
    from recurcli.commands.tune import tune as run_tune
    from recurcli.display.screen import Screen, print_json
    from recurcli.display.tuning import print_study

    keep_freed_memory()
    with Screen(quiet=quiet) as log:
        result = run_tune(request, log)
    if json:
        print_json(result)
    else:
        print_study(result)
