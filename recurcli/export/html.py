"""The export format `html`: one file with the linear model, which a browser runs and `recur predict` reads back.

No part of the page comes from elsewhere, and its Content-Security-Policy lets no request leave it. Shapes: N dev rows.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from recurcli.data.source import Source
from recurcli.errors import ModelError, UsageError, escaped, html_table, pluralize
from recurcli.evaluation.decision import Kept
from recurcli.evaluation.predictor import Predictor
from recurcli.evaluation.result_block import metric_rows
from recurcli.export.format import MIN_AGREEMENT, TrainedRun
from recurcli.files import naming_damage, read_limited, write_atomically
from recurcli.linear.model import LinearModel
from recurcli.linear.ngram_hashes import NgramConfig, Texts
from recurcli.linear.packed import LARGEST, from_bytes, pack, to_bytes, unpack
from recurcli.log import Log, Note
from recurcli.metrics import format_interval, format_score, words_of
from recurcli.runs.model_files import config_from_json, config_to_dict
from recurcli.runs.predictions import read_predictions
from recurcli.runs.run_directory import KEPT_FILE, check
from recurcli.targets import Cell, target_from_json
from recurcli.targets.target import Y
from recurcli.version import __version__

FOLDER = Path(__file__).parent / "page"
MAX_SIZE = 5.0
"""Megabytes of a page. Ours: e-mail takes it, and it opens in a second."""
CARD = 2_500
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


def export_html(
    runs: Sequence[TrainedRun],
    output: Path,
    log: Log,
    *,
    model: PageModel,
    max_size: float,
    min_agreement: float | None,
) -> dict[str, Any]:
    """Write the page `output` of at most `max_size` megabytes for one run, and return its facts.

    Weights are in 8 bits or in 16, whichever keeps more labels of the dev rows. Raises UsageError for a size without room for
    n-grams; ModelError if fewer than `min_agreement` of the labels are those of the linear model in full precision, or of the
    run. None: MIN_AGREEMENT of the first, any of the second.
    """
    [run] = runs
    target, about, title = model.kept.target, _about(run, model), escaped(run.path.resolve().name)

    def predictions(linear: LinearModel) -> Y:
        return model.kept.predict(model.kept.logits({"linear": linear.logits(model.texts)}))

    room = max_size * 1e6 - CARD - len(_page(title, about))
    full, total, found = predictions(model.first), len(model.linear.ngrams.keys), []
    for bits in (8, 16):
        share, content = 1.0, b""
        while not content or len(content) > room:
            share *= FIT * room / len(content) if content else 1.0
            if share * total < 1:
                raise UsageError(f"--max-size {max_size:g}: has no room for n-grams; give more megabytes")
            content = b64encode(to_bytes(pack(model.linear, share, bits=bits)))
        packed = unpack(pack(model.first, share, bits=bits), model.first.ngrams.config)
        small = predictions(packed)
        agreement = round(target.agreement(full, small), 4)  # differences of numbers below that do not count
        found.append((agreement, -len(content), bits, round(share * total), content, packed.ngrams, small))
    agreement, _, bits, count, content, ngrams, small = max(found, key=lambda each: each[:2])
    about["unknown_ngrams"] = ngrams.unknown_share(model.texts, fitted=model.out_of_fold is not None)
    y, own = target.encode(model.labels), small if model.out_of_fold is None else model.out_of_fold
    before = target.encode(read_predictions(run.folder, "model").predictions)
    with_run, rows, change = target.agreement(before, own), "training row", f"weights in {bits} bits"
    if model.out_of_fold is None:  # a score on rows that it was fitted on would mislead
        name = target.headline
        scores = [format_score(name, target.score(name, y, each)) for each in (full, small)]
        rows, change = "dev row", f"{words_of(name)} {' in full precision, '.join(scores)} in {bits} bits"
    agreements = f"{100 * agreement:.2f} %, with the run {100 * with_run:.2f} %"
    notes = [f"{pluralize(len(y), rows)}: {change}; agreement with the model in full precision {agreements}"]
    if count < total:
        what = "those with the smallest weights are left out"
        notes.append(f"{count:,} of {total:,} n-grams fit in {max_size:g} MB; {what}")
    log.add(*map(Note, notes := [*model.notes, *notes]))
    if min_agreement is None and with_run < MIN_AGREEMENT:
        headline = target.headline
        scores = [format_score(headline, target.score(headline, y, each)) for each in (own, before)]
        log.warn(
            f"the page gives other labels than the run; its {words_of(headline)} is {scores[0]}, the run's {scores[1]}"
        )
    for what, share, usual in (("the model in full precision", agreement, MIN_AGREEMENT), ("the run", with_run, 0.0)):
        if share < (least := usual if min_agreement is None else min_agreement):
            reason = f"its agreement with {what} is {100 * share:.2f} %, and --min-agreement asks for {100 * least:g} %"
            raise ModelError(f"{output}: is not written: {reason}; lower it, or raise --max-size")
    held = "it holds hashes of the n-grams of the training texts, and no texts"
    notes.insert(0, f"a linear model of {model.linear.in_words(model.linear.rows)}; {held}")
    page = _page(title, about, notes, _table(run, model, own, before), content)
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


def _table(run: TrainedRun, model: PageModel, found: Y, before: Y) -> str:
    """Return an HTML table of the page's metrics with 95 % intervals.

    Its last rows are the scores of the run and of a constant prediction.
    """
    target, y = model.kept.target, model.kept.target.encode(model.labels)
    name, rows = target.headline, "dev rows" if model.out_of_fold is None else "rows, cross-validated"
    metric = target.metric_of(run.folder.read_preset().get("finetuning", {}).get("metric", "auto"))
    report = {**target.report(y, found, None), "intervals": target.intervals(y, found), "target": target.kind}
    report |= {"metric": metric, "calibration": {}, "baselines": {}}
    others = {f"the run ({run.predictor.kept.name})": before, target.constant_words: target.constant(y)}
    scores = [
        [f"{line}: {words_of(name)}", format_score(name, target.score(name, y, own)), format_interval(name, limits)]
        for line, own in others.items()
        if (limits := target.interval(y, own))
    ]
    return html_table([*metric_rows(report), *scores], (f"on {len(y):,} {rows}", "value", "95 % interval"))


def _page(
    title: str, about: Mapping[str, Any], notes: Iterable[str] = (), table: str = "", content: bytes = b""
) -> bytes:
    """Return the page, which ends with its sha256. The scripts and styles that may run are those with the hashes here."""
    read = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.iterdir() if path.is_file()}
    script, style = read["model.js"] + read["page.js"], read["page.css"]
    allowed = [f"'sha256-{b64encode(sha256(each.encode()).digest()).decode()}'" for each in (script, style)]
    values = {
        "policy": f"default-src 'none'; script-src {allowed[0]}; style-src {allowed[1]}; base-uri 'none'; form-action 'none'",
        "title": escape(title),
        "notes": "".join(f"<p>{escape(note[0].upper() + note[1:])}.</p>" for note in notes),
        "scores": table,
        "version": __version__,
        "style": style,
        "about": json.dumps(about).replace("<", "\\u003c"),
        "model": content.decode(),
        "script": script,
    }
    page = re.sub(r"\{\{ (\w+) \}\}", lambda mark: values[mark[1]], read["page.html"]).encode()
    return page + _SEAL + sha256(page).hexdigest().encode() + b" -->\n"


def read_page(path: Path) -> tuple[Predictor, str, float]:
    """Return the model of a page, the sha256 of the file, and the share of the n-grams of its dev rows that are unknown.

    Raises ModelError if it is none, or was cut or edited.
    """
    content = read_limited(path, LARGEST)
    page, _, seal = content.rpartition(_SEAL)
    parts = dict(_PART.findall(page))
    if sha256(page).hexdigest().encode() + b" -->\n" != seal or len(parts) < 2:
        is_page = content.startswith(b"<!doctype html>")
        fault = "was cut or edited" if is_page else "is not a run directory, and no page"
        raise ModelError(f"{path}: {fault}; a page is read as `recur export --format html` wrote it")
    with naming_damage(path):
        about = json.loads(parts[b"about"])
        config = config_from_json(about["config"], path)
        check(about["kept"], KEPT_FILE)
        kept = Kept.from_json(about["kept"], target_from_json(config.target, config.labels))
        if (found := about["thresholds"]) is not None:
            kept = replace(kept, thresholds={"thresholds": dict(zip(config.labels, found, strict=True))})
        linear = unpack(from_bytes(b64decode(parts[b"model"]), path), NgramConfig(**about["ngrams"]))
        if len(linear.bias) != kept.target.width or kept.name != "linear model":
            raise ValueError("its weights are not those of its labels")
        unknown = float(about["unknown_ngrams"])
    source = Source.from_json(config.source, path)
    predictor = Predictor(config=config, source=source, encoder=None, linear=linear, kept=kept, run=path)
    return predictor, sha256(content).hexdigest(), unknown
