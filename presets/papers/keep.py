"""Keep what the tables of a finished study need, so that results.py writes them again: python keep.py FOLDER [RESULTS].

FOLDER is that of a study, such as runs/studies/rsa. RESULTS, by default results/ beside this script, gets

    PAPER/TABLE.claim, .json   the claim, and the names and runs of the groups that the table compares
    RUN.json                   result.json, which has seed and versions, without paths and what is said of single classes;
                               `keys`, those in which the run differs from its preset; its `command` with the names of files;
                               `rates`, those that the search tried (with `:` and the factor of scalars); for each row one
                               bit, in hex: whether it is right; of a language model its loss on each block of the text
    PAPER/NAME.json, .md       what `recur bench` and scripts have printed
    PAPER/NAME/RUN.json        the scores and the diagnosis of `recur eval --diagnose`, of a folder NAME that ends in diagnosis
    PAPER/lengths.json         what recurrence/lengths.py has counted, if the study has it, and what was kept of more seeds
    rows/SHA256.txt            once a file of rows: the hash of each row's id, in the order of the bits; of a text the number of
                               tokens of each block

No text and no label of a row is kept. PAPER/TABLE and RUN are as below the folder that holds FOLDER.
"""

import hashlib
import json
import runpy
import shlex
import sys
from pathlib import Path
from typing import Any

from recurcli.errors import RecurError
from recurcli.metrics import PERPLEXITY
from recurcli.runs.predictions import read_predictions, read_text_losses
from recurcli.runs.run_directory import open_run

KEPT = runpy.run_path(str(Path(__file__).parent / "kept.py"))
packed, own_keys = KEPT["packed"], KEPT["own_keys"]

LEFT_OUT = {
    *("command_line", "path", "init", "teacher", "match_parameters"),
    *("names", "per_class", "confusion", "thresholds", "bins", "columns"),
}
"""Keys of result.json: paths, and what is said of single classes, of bins of the calibration and of columns."""


def main(folder: Path, results: Path = Path(__file__).parent / "results") -> None:
    """Keep the tables in `folder`, and their runs."""
    folder = folder.resolve()
    studies, claims = folder.parent, sorted(folder.glob("*.claim"))
    printed = [
        path for path in (*folder.glob("*.json"), *folder.glob("*.md")) if not path.with_suffix(".claim").exists()
    ]
    if not claims and not printed:
        sys.exit(f"{folder}: has no table with a claim; run the study first")
    for path in printed:
        if path.name != "lengths.json":
            _write(results / folder.name / path.name, path.read_text())
    for path in folder.glob("*diagnosis/**/*.json"):
        shown = json.loads(path.read_text())
        own = {"metrics": _bare(shown["metrics"]), "diagnosis": shown["diagnosis"]}
        _write(results / folder.name / path.relative_to(folder), json.dumps(own, separators=(",", ":")) + "\n")
    for claim in claims:
        table = json.loads(claim.with_suffix(".json").read_text())
        if table["metric"] not in ("accuracy", PERPLEXITY):
            sys.exit(f"{claim.with_suffix('.json')}: is of {table['metric']}; a bit a row gives the accuracy alone")
        groups = []
        for group in table["groups"]:
            runs = [_below(studies, path) for path in group["runs"]]
            groups.append({"name": group["name"], "runs": runs})
            for run, manifest in zip(runs, group["manifests"], strict=True):
                _keep_run(studies / run, manifest, table, results / f"{run}.json", results / "rows")
        kind, margin, claimed = claim.read_text().split()
        kept = {"metric": table["metric"], "split": table["split"], "groups": groups}
        _write(results / folder.name / f"{claim.stem}.json", json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
        _write(results / folder.name / claim.name, f"{kind} {margin} {_below(studies, claimed)}\n")
    lengths = folder / "lengths.json"
    if lengths.exists():
        merged = runpy.run_path(str(Path(__file__).parent / "recurrence/lengths.py"))["merged"]
        path = results / folder.name / lengths.name
        wrong = merged(json.loads(path.read_text()) if path.exists() else {}, json.loads(lengths.read_text()))
        _write(path, json.dumps(wrong, separators=(",", ":")) + "\n")
    size = sum(path.stat().st_size for path in results.rglob("*") if path.is_file())
    print(f"{results}: {size / 1e6:.2f} MB in all", file=sys.stderr)


def _keep_run(run: Path, manifest: str, table: dict[str, Any], path: Path, rows: Path) -> None:
    """Write the results of a `run` to `path`, and the hashes of the row ids to a file in `rows`."""
    files = open_run(run)
    if files.sha256 != manifest:
        sys.exit(f"{run}: was trained again after its table was made; run the study again, which makes the table")
    result = files.read_result()
    if table["metric"] == PERPLEXITY:
        losses = read_text_losses(files)
        units = [str(tokens) for tokens in losses.tokens]
        own: dict[str, Any] = {"nats": [round(nats, 4) for nats in losses.nats]}
    else:
        scored = read_predictions(files, table["part"], table["split"])
        units = [hashlib.sha256(each.encode()).hexdigest()[:8] for each in scored.ids]
        own = {"right": packed(scored.hits)}
    listed = rows / f"{result['data'][table['split']]['sha256']}.txt"
    if listed.exists() and listed.read_text().split() != units:
        sys.exit(f"{run}: was scored on other rows than those of {listed}, whose file has the same hash")
    _write(listed, "\n".join(units) + "\n")
    rates = run.parent.with_name(f"{run.parent.name}.rates")
    own["rates"] = rates.read_text().split() if rates.exists() else None
    own |= {"keys": own_keys(files.read_preset(), result["preset"]), "command": _command(result["command_line"])}
    _write(path, json.dumps({**own, "result": _bare(result)}, separators=(",", ":")) + "\n")


def _command(words: list[str]) -> str:
    """Shorten the paths of a command line to file names, and drop its `--output`."""
    named = [
        word.rpartition("=")[0] + "=" * ("=" in word) + word.rpartition("/")[2] if "/" in word else word
        for word in words
    ]
    kept = [word for before, word in zip(["", *named], named, strict=False) if "--output" not in (before, word)]
    return shlex.join(["recur", *kept[1:]])


def _bare(value: Any) -> Any:
    """Return a value of result.json without the keys LEFT_OUT."""
    if isinstance(value, dict):
        return {key: _bare(each) for key, each in value.items() if key not in LEFT_OUT}
    return [_bare(each) for each in value] if isinstance(value, list) else value


def _below(studies: Path, path: str) -> str:
    """Return the `path` of a run as below the folder of all studies."""
    if not Path(path).resolve().is_relative_to(studies):
        sys.exit(f"{path}: is not below {studies}, the folder of the studies; run this where the study was run")
    return str(Path(path).resolve().relative_to(studies))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(str(__doc__).partition("\n")[0])
    try:
        main(*map(Path, sys.argv[1:]))
    except RecurError as error:
        sys.exit(str(error))
