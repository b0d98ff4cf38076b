"""The `recur export` command."""

from recurcli.cli.app import command
from recurcli.requests.export import ExportRequest
from recurcli.requests.options import Debug, Json, Quiet


@command(
    "recur export runs/starsaber-tnews runs/starsaber-afqmc --data $RECUR_DATA --output clue.zip",
    "recur export runs/starsaber-tnews --format onnx --output tnews-onnx",
    "recur export runs/starsaber-tnews --format onnx --quantize int8 --output tnews-int8",
    "recur export runs/packages --format html --output classifier.html",
    "recur export runs/packages --push me/packages",
)
def export(request: ExportRequest, json: Json = False, quiet: Quiet = False, debug: Debug = False) -> None:
    """Write predictions for CLUE's leaderboard, an ONNX model, or a page that labels texts; or push to the Hub.

    clue predicts the test rows of each run's task and writes them as the leaderboard wants them, checked before they are
    written. It computes in fp32 unless --precision says otherwise, so that the same runs give the same bytes.

    onnx writes a folder with the model in fp32, checked against the run, and a script predict.py that needs onnxruntime,
    tokenizers and numpy only. It needs the packages of recurcli[onnx], and no data. With --quantize int8 the folder is about a
    quarter as large, its linear model is in half precision, and its score on the run's dev rows is compared with fp32.

    html writes one file with the linear model, which labels texts in a browser without a network; `recur predict` reads it in
    place of a run. Static vectors and the encoder are left out. On how many dev rows it agrees with the run is said.

    run writes a copy of a run without the texts of its rows. --push uploads such a copy, or with --format onnx that folder, to
    the Hugging Face Hub: privately, and after a list of the files. `recur predict hf://OWNER/NAME` reads it.
    """
    from recurcli.commands.export import export as run_export
    from recurcli.display.screen import Screen, print_export, print_result

    with Screen(quiet=quiet) as log:
        result = run_export(request, log)
    print_result(result, print_export, json=json)
