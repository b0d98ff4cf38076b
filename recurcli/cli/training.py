"""The `recur pretrain` and `recur finetune` commands."""

import time
from functools import partial

from recurcli.cli.app import command
from recurcli.process import keep_freed_memory
from recurcli.requests.options import Debug, Json, Quiet
from recurcli.requests.training import FinetuneRequest, PretrainRequest


@command("recur pretrain --preset starsaber-tnews --data $RECUR_DATA --set pretraining.epochs=5")
def pretrain(request: PretrainRequest, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Train an encoder on text without labels.

    The text is that of the task's train, dev and test rows, or a text file (.txt) given as --data. Masked tokens are predicted,
    or with pretraining.objective causal the next token: then the model is selected by its perplexity on the dev text.
    """
    from recurcli.metrics import PERPLEXITY

    _train(request, PERPLEXITY, json=json, quiet=quiet)


@command("recur finetune reviews.csv", "recur finetune --preset bilstm-tnews --init runs/pretrained --seed 11")
def finetune(request: FinetuneRequest, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Train a classifier on labelled rows.

    Starts from scratch or from a pretrained run. The dev rows choose the step of the encoder, and whether the run keeps it, the
    linear model beside it, or a weighted sum of both.
    """
    preset = request.resolved.preset
    of = "" if preset.ensemble is None else " of the encoder"
    _train(request, preset.finetuning.metric, of, json=json, quiet=quiet)


def _train(request: PretrainRequest | FinetuneRequest, metric: str, of: str = "", *, json: bool, quiet: bool) -> None:
    """Train, show the progress with the dev `metric`, and print the result."""
    from recurcli.commands.training.resume import repeated_result
    from recurcli.display.screen import Screen, print_plan, print_result, print_training, time_in_words

    if not request.resolved.preset.is_linear:  # which takes no steps of one size, and large blocks once
        keep_freed_memory()
    started = time.monotonic()
    with Screen(quiet=quiet, verbose=request.verbose, metric=metric, of=of) as log:
        result = repeated_result(request, log)  # within a second, because torch is not imported
        if result is None:
            if isinstance(request, FinetuneRequest):
                from recurcli.commands.finetune import finetune

                result = finetune(request, log)
            else:
                from recurcli.commands.pretrain import pretrain

                result = pretrain(request, log)
            if not request.dry_run:
                log.note(f"took {time_in_words(time.monotonic() - started)}")
    show = print_plan if request.dry_run else partial(print_training, output=request.folder, verbose=request.verbose)
    print_result(result, show, json=json)
