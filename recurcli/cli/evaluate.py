"""The `recur eval` command."""

from recurcli.cli.app import command
from recurcli.requests.evaluate import EvaluateRequest
from recurcli.requests.options import Debug, Json, Quiet


@command("recur eval runs/reviews", "recur eval runs/reviews new.csv --report new.html", name="eval")
def evaluate(request: EvaluateRequest, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Score a classifier on labelled rows, or a language model.

    Of a classifier, prints the accuracy of what was kept, of its parts and of the most frequent label, then precision, recall
    and F1 by class, and the confusion table; --verbose adds the other metrics, loss and calibration. Of several labels a row
    it prints micro F1, and the scores by label; of numbers the mean absolute error (MAE), and all other metrics. Of a language
    model (`recur pretrain` with the causal objective) prints the perplexity, in windows as long as in training. Computes in
    fp32 unless --precision says otherwise, as all that reads a run does. FILE (or --data FILE) is scored whole, and the numbers
    of training and dev rows among its rows are reported; with --split dev or train, the file that the run was trained on is
    divided as in training. Its columns and encoding are those of the training, unless --text, --pair, --label or --encoding
    name others.
    """
    from recurcli.commands.evaluate import evaluate as run_evaluate
    from recurcli.display import evaluation, screen
    from recurcli.evaluation.result_block import result_block

    with screen.Screen(quiet=quiet, verbose=request.verbose) as log:
        result, run, rows = run_evaluate(request, log)
        if rows is not None:
            trained = run.read_result() if run.is_finished else {}
            block = result_block(request.run, trained, result, has_page=request.report is not None)
        if request.report is not None and rows is not None:
            from recurcli.display.report.evaluation import write_report

            write_report(request.report, block, result, rows, run)
            log.note(f"{request.report}: written")
    if json:
        screen.print_json(result)
        return
    if "perplexity" in result:
        evaluation.print_perplexity(result)
    else:
        evaluation.print_evaluation(result, block, verbose=request.verbose)
    if request.diagnose and result.get("diagnosis"):
        evaluation.print_diagnosis(result["diagnosis"])
