"""The export format `html`: one file with the linear model, which a browser runs and `recur predict` reads back.

No part of the page comes from elsewhere, and its Content-Security-Policy lets no request leave it. Shapes: N dev rows.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recurcli.data.source import Source
from recurcli.errors import ModelError, UsageError, escaped, pluralize
from recurcli.evaluation.decision import Kept
from recurcli.evaluation.predictor import Predictor
from recurcli.evaluation.result_block import metric_rows
from recurcli.export.format import MIN_AGREEMENT, TrainedRun
from recurcli.files import naming_damage, read_limited, write_atomically
from recurcli.linear.model import LinearModel
from recurcli.linear.ngram_hashes import NgramConfig, Texts
from recurcli.linear.packed import from_bytes, layout_of, pack, to_bytes, unpack
from recurcli.log import Log
from recurcli.metrics import format_interval, format_score, words_of
from recurcli.runs.model_files import config_from_json, config_to_dict, read_linear_model
from recurcli.runs.predictions import read_predictions, read_texts
from recurcli.runs.run_directory import KEPT_FILE, PREDICTIONS, check
from recurcli.targets import Cell, target_from_json
from recurcli.targets.target import Y
from recurcli.version import __version__

FOLDER = Path(__file__).parent / "page"
MAX_SIZE = 5.0
"""Megabytes of a page. Ours: e-mail takes it, and it opens in a second."""
LARGEST = 1 << 28
"""Bytes of a page that is read."""
CARD = 5_000
"""Bytes that are left for scores and notes, which follow the choice of the weights."""
FIT = 0.98
"""Share of the n-grams that should fit with which it is tried again, since those that stay take more bytes each. Ours."""
_PART = re.compile(rb'<script type="[a-z/]+" id="(about|model)">([^<]*)</script>')
_SEAL = b"<!-- sha256 of recur export: "


class PageModel(NamedTuple):
    """The linear model that a page is to hold, and the rows on which it is compared with its run."""

    linear: LinearModel
    kept: Kept
    first: LinearModel
    """The one that was not fitted on the dev rows; of a cross-validated run `linear`."""
    texts: Texts
    """Of the dev rows (N)."""
    labels: Sequence[Cell]
    out_of_fold: Y | None
    """The predictions (N, …) of models that were not fitted on these rows, where they are cross-validated."""
    notes: tuple[str, ...] = ()


def model_of_run(run: TrainedRun) -> PageModel:
    """Return the linear model of a run as it is. Raises ModelError if the run keeps no texts of its dev rows."""
    folder, linear, kept = run.folder, run.predictor.linear, run.predictor.kept.only_linear
    rows = read_texts(folder) if PREDICTIONS in folder else []
    if not rows:
        raise ModelError(
            f"{run.path}: keeps no texts of dev rows (finetuning.keep_texts), with which a page is compared"
        )
    first = read_linear_model(folder, kept.target.width, first_fit=True)
    assert first is not None and linear is not None, "its kind was checked"
    is_validated = folder.is_finished and "cross_validation" in folder.read_result()
    out_of_fold = read_predictions(folder, "linear").encoded()[1] if is_validated else None
    return PageModel(linear, kept, first, [row[:2] for row in rows], [row.label for row in rows], out_of_fold)


def export_html(
    runs: Sequence[TrainedRun],
    output: Path,
    log: Log,
    *,
    model_of: Callable[[TrainedRun], PageModel] = model_of_run,
    max_size: float = MAX_SIZE,
    min_agreement: float | None = None,
) -> dict[str, Any]:
    """Write the page `output` of at most `max_size` megabytes for one run, and return its facts.

    Weights are in 8 bits or in 16, whichever keeps more labels of the dev rows. Raises UsageError for several runs,
    for one that keeps no linear model, and for a size without room for n-grams; ModelError if fewer than `min_agreement` of the
    labels are those of the linear model in full precision, or of the run. None: MIN_AGREEMENT of the first, any of the second.
    """
    if len(runs) != 1:
        raise UsageError("--format html writes one run; give one RUN and call it again for the others")
    [run] = runs
    if run.predictor.kept.name == "encoder":
        what = "the model is the encoder alone, and a page holds a linear model"
        raise UsageError(f"{run.path}: {what}; --format onnx exports the encoder")
    model = model_of(run)
    target, about, title = model.kept.target, _about(run, model), escaped(run.path.resolve().name)

    def predictions(linear: LinearModel) -> Y:
        return model.kept.predict(model.kept.logits({"linear": linear.logits(model.texts)}))

    room = max_size * 1e6 - CARD - len(_page(title, about, [], [], b""))
    full, total, found = predictions(model.first), len(model.linear.ngrams.keys), []
    for bits in (8, 16):
        share, content = 1.0, b""
        while not content or len(content) > room:
            share *= FIT * room / len(content) if content else 1.0
            if share * total < 1:
                raise UsageError(f"--max-size {max_size:g}: has no room for n-grams; give more megabytes")
            arrays = pack(model.linear, share, bits=bits)
            content = b64encode(to_bytes(arrays))
        small = predictions(unpack(pack(model.first, share, bits=bits), model.first.ngrams.config))
        agreement = round(target.agreement(full, small), 4)  # differences of numbers below that do not count
        found.append((agreement, -len(content), bits, arrays, content, small))
    agreement, _, bits, arrays, content, small = max(found, key=lambda each: each[:2])
    y, own = target.encode(model.labels), small if model.out_of_fold is None else model.out_of_fold
    before = target.encode(read_predictions(run.folder, "model").predictions)
    before_and_after = [format_score(target.headline, target.score(target.headline, y, each)) for each in (full, small)]
    with_run, count = target.agreement(before, own), len(arrays["rest"])
    rows = pluralize(len(y), "dev row" if model.out_of_fold is None else "training row")
    change = f"{words_of(target.headline)} {' in full precision, '.join(before_and_after)} in {bits} bits"
    if model.out_of_fold is not None:  # a score on rows that it was fitted on would mislead
        change = f"weights in {bits} bits"
    notes = [
        *model.notes,
        f"{rows}: {change}; agreement with the model in full precision {100 * agreement:.2f} %, with the run "
        f"{100 * with_run:.2f} %",
    ]
    if count < total:
        notes.append(
            f"{count:,} of {total:,} n-grams fit in {max_size:g} MB; those with the smallest weights are left out"
        )
    for note in notes:
        log.note(note)
    for what, share, usual in (("the model in full precision", agreement, MIN_AGREEMENT), ("the run", with_run, 0.0)):
        if share < (least := usual if min_agreement is None else min_agreement):
            reason = f"its agreement with {what} is {100 * share:.2f} %, and --min-agreement asks for {100 * least:g} %"
            raise ModelError(f"{output}: is not written: {reason}; lower it, or raise --max-size")
    about["layout"] = layout_of(arrays)
    page = _page(title, about, [*_notes(model), *notes], _tables(run, model, own, before), content)
    write_atomically(output, page)
    facts = {"agreement": agreement, "agreement_with_run": with_run, "ngrams": count}
    return {"files": [{"name": output.name, "bytes": len(page), "purpose": f"linear model in {bits} bits"}], **facts}


def _about(run: TrainedRun, model: PageModel) -> dict[str, Any]:
    """Return what a reader of the page's weights needs besides; no local path."""
    kept, source = model.kept, run.predictor.source
    slopes, offsets = np.broadcast_to(kept.slopes_and_offsets["linear"].reshape(2, -1), (2, kept.target.width)).tolist()
    own = asdict(replace(source, path=None, name=Path(source.name).name))
    return {
        "config": config_to_dict(replace(run.predictor.config, network=None, source=own)),
        "kept": kept.to_json(),
        "slopes": slopes,
        "offsets": offsets,
        "least": kept.target.least_probability(kept.rows),
        "thresholds": kept.threshold_values or None,
        "order": sorted(range(kept.target.width), key=kept.target.labels.__getitem__),
        "ngrams": asdict(model.linear.ngrams.config),
    }


def _notes(model: PageModel) -> list[str]:
    held = "of the texts of the training it holds hashes of n-grams"
    return [f"a linear model of {model.linear.in_words(model.linear.rows)}; {held}"]


def _tables(run: TrainedRun, model: PageModel, found: Y, before: Y) -> list[list[Sequence[str]]]:
    """Return two tables with 95 % intervals: the scores of the page, its run and a constant; and all metrics of the page."""
    target, y = model.kept.target, model.kept.target.encode(model.labels)
    name, rows = target.headline, "dev rows" if model.out_of_fold is None else "rows, cross-validated"
    metric = target.metric_of(run.folder.read_preset().get("finetuning", {}).get("metric", "auto"))
    report = {**target.report(y, found, None), "intervals": target.intervals(y, found), "target": target.kind}
    lines = {
        "this page": found,
        f"the run, {run.predictor.kept.name}": before,
        target.constant_words: target.constant(y),
    }
    scores = [
        [line, format_score(name, target.score(name, y, own)), format_interval(name, target.interval(y, own))]
        for line, own in lines.items()
    ]
    return [
        [["model", f"{words_of(name)} on {len(y):,} {rows}", "95 % interval"], *scores],
        [
            ["metric", "value", "95 % interval"],
            *metric_rows({**report, "metric": metric, "calibration": {}, "baselines": {}}),
        ],
    ]


def _page(
    title: str,
    about: Mapping[str, Any],
    notes: Iterable[str],
    tables: Iterable[Iterable[Iterable[str]]],
    content: bytes,
) -> bytes:
    """Return the page, which ends with its sha256. The scripts and styles that may run are those with the hashes here."""
    read = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir() if path.is_file()}
    script, style = read["model.js"] + read["page.js"], read["page.css"]
    allowed = [f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in (script, style)]
    shown = ["".join(_row(number, line) for number, line in enumerate(table)) for table in tables] or ["", ""]
    values = {
        "policy": f"default-src 'none'; script-src {allowed[0]}; style-src {allowed[1]}; base-uri 'none'; form-action 'none'",
        "title": escape(title),
        "notes": "".join(f"<p>{escape(note[0].upper() + note[1:])}.</p>" for note in notes),
        "scores": shown[0],
        "metrics": shown[1],
        "version": __version__,
        "style": style,
        "about": json.dumps(about).replace("<", "\\u003c"),
        "model": content.decode(),
        "script": script,
    }
    page = re.sub(r"\{\{ (\w+) \}\}", lambda mark: values[mark[1]], read["page.html"]).encode()
    return page + _SEAL + sha256(page).hexdigest().encode() + b" -->\n"


def _row(number: int, cells: Iterable[str]) -> str:
    """Return a row of a table: the first one has the names of the columns, and each begins with its name."""
    first, *others = (escape(cell) for cell in cells)
    kind = "td" if number else 'th scope="col"'
    rest = "".join(f"<{kind}>{cell}</{kind[:2]}>" for cell in others)
    return f'<tr><th scope="{"row" if number else "col"}">{first}</th>{rest}</tr>'


def read_page(path: Path) -> tuple[Predictor, str]:
    """Return the model of a page, and the sha256 of the file. Raises ModelError if it is none, or was cut or edited."""
    content = read_limited(path, LARGEST)
    page, _, seal = content.rpartition(_SEAL)
    parts = dict(_PART.findall(page))
    if sha256(page).hexdigest().encode() + b" -->\n" != seal or len(parts) < 2:
        fault = (
            "was cut or edited" if content.startswith(b"<!doctype html>") else "is neither a run directory nor a page"
        )
        raise ModelError(f"{path}: {fault}; a page is read as `recur export --format html` wrote it")
    with naming_damage(path):
        about = json.loads(parts[b"about"])
        config = config_from_json(about["config"], path)
        check(about["kept"], KEPT_FILE)
        kept = Kept.from_json(about["kept"], target_from_json(config.target, config.labels))
        if (found := about["thresholds"]) is not None:
            kept = replace(kept, thresholds={"thresholds": dict(zip(config.labels, found, strict=True))})
        linear = unpack(from_bytes(b64decode(parts[b"model"]), about["layout"]), NgramConfig(**about["ngrams"]))
        if len(linear.bias) != kept.target.width or kept.name != "linear model":
            raise ValueError("its weights are not those of its labels")
    source = Source.from_json(config.source, path)
    predictor = Predictor(config=config, source=source, encoder=None, linear=linear, kept=kept, run=path)
    return predictor, sha256(content).hexdigest()
