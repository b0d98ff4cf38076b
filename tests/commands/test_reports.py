"""The pages of `recur eval --report` and `recur compare --report`, which a browser opens from the disk."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from running import Recur, lines_of, result_of
from safetensors.numpy import load_file
from small_runs import reweighted
from tiny_task import rows, tiny, write_rows

from recurcli.commands.training.report import model_card
from recurcli.display.screen import print_training
from recurcli.evaluation.decision import Kept
from recurcli.files import extend_manifest
from recurcli.targets import OneLabel

EVIL = '<script>alert(1)</script> & "x" <img src=x onerror=y> \u202egnp \x1b[31m $a_b$'
VOID = {"meta", "br", "img", "hr", "link", "input", "path", "use"}


class Page(HTMLParser):
    """Tags, ids, links and the text of a page; fails for tags that are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.links: set[str] = set()
        self.text = ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        own = dict(attributes)
        self.ids += [own["id"] or ""] if "id" in own else []
        self.text += own.get("aria-label") or ""
        self.links |= {own[key] or "" for key in ("href", "src", "xlink:href") if key in own}
        assert not any(key.startswith("on") for key in own), "a page has no scripts"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read_page(path: Path) -> Page:
    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert {"script", "iframe", "object", "link"}.isdisjoint(page.tags)
    images = {link for link in page.links if link.startswith("data:image/png;base64,")}
    assert {link.removeprefix("#") for link in page.links - images} <= set(page.ids), "a page needs nothing but itself"
    assert len(page.ids) == len(set(page.ids))
    without_images = re.sub('data:image/png;base64,[^"]*', "", html)
    assert not re.search(r"(?:https?:)?//(?!www\.w3\.org/)", without_images), "a page has no address of the network"
    assert "\x1b" not in html and "\u202e" not in html
    return page


def page_of(recur: Recur, run: Path, folder: Path) -> Page:
    """The page of an evaluation of a run on its dev rows."""
    recur.ok("eval", run, "--report", folder / "r.html", "--quiet")
    return read_page(folder / "r.html")


@pytest.mark.parametrize(
    ("encoder_weight", "counted"),
    [
        pytest.param(0.0, "{linear:,} of the linear model", marks=pytest.mark.slow),
        (0.5, "{both:,}: {encoder:,} of the encoder and {linear:,} of the linear model"),
    ],
)
def test_words_and_parameters_are_those_of_what_predict_runs(
    encoder_weight: float, counted: str, trained: Path, tmp_path: Path, recur: Recur, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    result = result_of(run)
    result["kept"] = reweighted(Kept(OneLabel(()), **result["kept"]), encoder_weight, 1.0).to_json()
    (run / "result.json").write_text(json.dumps(result))
    extend_manifest(run, "result.json")
    weights = load_file(run / "linear.safetensors")
    encoder, linear = result["parameters"]["total"], weights["weights"].size + weights["bias"].size
    expected = counted.format(encoder=encoder, linear=linear, both=encoder + linear)
    card = model_card(result)
    assert f"| parameters | {expected}" in card and "best dev accuracy of the encoder at step" in card
    print_training(result, run, verbose=True)
    shown = " ".join(capsys.readouterr().out.split())
    assert f"parameters {expected}" in shown and "best dev accuracy of the encoder at step" in shown
    assert expected in page_of(recur, run, tmp_path).text


@pytest.fixture(scope="module")
def evil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """TNEWS' rows, some with texts that are HTML."""
    folder = tmp_path_factory.mktemp("evil")
    made = rows(30, seed=5, labelled=True)
    for row in made[::3]:
        row["sentence"] = f"{row['sentence']}{EVIL}"
        row["label"] = "100"
    write_rows(folder / "x.json", [*made, {"sentence": EVIL, "label": "101"}])
    return folder / "x.json"


def test_the_page_of_an_evaluation(recur: Recur, trained: Path, evil: Path, tmp_path: Path) -> None:
    outputs = ("--report", tmp_path / "r.html", "--errors", tmp_path / "e.tsv")
    result = recur.json("eval", trained, "--data", evil, *outputs)
    page = read_page(tmp_path / "r.html")
    for name in ("accuracy", "macro_f1", "mcc"):
        assert f"{100 * result['metrics'][name]:.1f}" in page.text
    for low, high in filter(None, result["intervals"].values()):  # of few rows: the accuracy and the recalls
        assert f"{100 * low:.1f}–{100 * high:.1f}" in page.text
    assert f"error (ECE) is {100 * result['calibration']['ece']:.1f} %" in page.text
    assert f"linear model {100 * result['baselines']['linear']:.1f}" in page.text
    confusion = result["metrics"]["confusion"]
    wrong = {(i, j): n for i, row in enumerate(confusion) for j, n in enumerate(row) if n and i != j}
    assert {f"#rows-{i}-{j}" for i, j in wrong} == {link for link in page.links if link.startswith("#rows")}
    names = result["metrics"]["names"]
    for (i, j), count in wrong.items():
        assert f"{names[i]} → {names[j]}: {count} rows" in page.text
    mistakes = (tmp_path / "e.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert len(mistakes) == sum(wrong.values()) > 0
    for line in mistakes:
        shown = line.split("\t")[5].replace("\u202e", "\\u202e").replace("\x1b", "\\x1b")
        assert page.text.count(shown) >= 2, "among the rows of its cell, and among the mistakes"
    assert "activation factor" in page.text and "alpha" in page.text
    assert page.text.count("--threshold 0.9: ") == 1, "a chart has its numbers in words"
    assert page.text.count("over the optimizer step") == 3  # loss, dev metric, alpha
    assert "alpha over the optimizer step" in page.text


def test_the_first_screen_is_the_answer(recur: Recur, trained: Path, evil: Path, tmp_path: Path) -> None:
    result = recur.json("eval", trained, "--data", evil, "--report", tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    first, *sections = html.partition("<body>")[2].split("<h2 ")
    names = [part.removeprefix('id="').partition('"')[0] for part in sections]
    assert names == ["mistakes", "classes", "calibration", "data", "training", "layers"]
    accuracy, (low, high) = result["metrics"]["accuracy"], result["intervals"]["accuracy"]
    words = re.sub("<[^>]*>", "", first)
    answer = f"{100 * accuracy:.1f} % right on {result['rows']} rows ({100 * low:.1f}–{100 * high:.1f}). Kept: "
    places = [words.index(part) for part in (answer, "majority class", "The largest confusion: ", "Next: ")]
    assert places == sorted(places)
    assert first.index('class="confusion') < first.index('aria-label="accuracy by coverage') and "<details" not in first
    assert 'tr class="few"' in first, "a label with few rows is faded"


def test_every_table_has_a_caption_and_scopes_and_every_chart_its_numbers(
    recur: Recur, trained: Path, evil: Path, tmp_path: Path
) -> None:
    recur.ok("eval", trained, "--data", evil, "--report", tmp_path / "r.html", "--quiet")
    recur.ok("compare", trained, "--report", tmp_path / "c.html", "--quiet")
    for name in ("r.html", "c.html"):
        html = (tmp_path / name).read_text(encoding="utf-8")
        assert html.count("<table") == html.count("<caption>") > 0 and "<th>" not in html and "<th class" not in html
        charts = re.findall('<div role="img" aria-label="([^"]*)">(<svg.*?</svg>)', html, re.DOTALL)
        assert len(charts) == html.count("<svg") > 0
        for label, svg in charts:
            assert re.search(r"\d", label)
            assert "#ffffff" not in svg, "its background is that of the page, light or dark"
            width = float(re.search('width="([0-9.]+)pt"', svg)[1])  # type: ignore[index]
            sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:\d+ )?([0-9.]+)px", svg)]
            assert min(sizes) * (390 - 2 * 16) / width >= 12, "of a screen of 390 pixels with its margins"


def test_two_classes_have_a_curve_of_precision_over_recall(recur: Recur, tmp_path: Path) -> None:
    texts = [("win money now", "spam"), ("see you at lunch", "ham"), ("call me later", "ham")]
    lines = [f"{text} {number % 7},{label}" for number in range(40) for text, label in texts]
    (tmp_path / "x.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    recur.ok("finetune", "--preset", "linear-custom", "--data", tmp_path / "x.csv", "--output", tmp_path / "run")
    page = page_of(recur, tmp_path / "run", tmp_path)
    assert "precision over recall of spam: the run has precision 100.0 and recall 100.0" in page.text


def test_the_scalars_of_the_encoder_are_in_the_metrics(trained: Path) -> None:
    lines = lines_of(trained / "metrics.jsonl")
    names = {name for name in lines[0] if name.startswith("encoder.")}
    assert names == {"encoder.layers.0.alpha", "encoder.layers.1.alpha"}
    newest = max((trained / "checkpoints").glob("step-????????"))
    weights = load_file(newest / "model.safetensors")
    assert lines[-1]["step"] == int(newest.name.removeprefix("step-"))
    assert all(lines[-1][name] == weights[name] != lines[0][name] for name in names)


def test_the_page_of_a_run_that_is_not_finished_has_no_facts_of_it(recur: Recur, trained: Path, tmp_path: Path) -> None:
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "result.json").unlink()
    (run / "metrics.jsonl").write_bytes(b'{"step": 1, "loss": 2}\nbroken')
    page = page_of(recur, run, tmp_path)
    assert "Learning curves" not in page.text and "Confusions" in page.text


def test_the_page_of_a_comparison(recur: Recur, tiny_tnews: Path, trained: Path, tmp_path: Path) -> None:
    other, output = tmp_path / "other", tmp_path / "c.html"
    settings = tiny("finetuning.epochs=1", "encoder.hidden_size=8", "ensemble=null", "finetuning.linear_baseline=false")
    recur.ok("finetune", "--preset", "bilstm-tnews", "--data", tiny_tnews, "--output", other, *settings)
    result = recur.json("compare", trained, other, "--report", output)
    page = read_page(output)
    for group in result["groups"]:
        assert group["name"] in page.text
        assert group["interval"][0] <= group["mean"] <= group["interval"][1]
    test = result["tests"][0]
    stored = [lines_of(run / "predictions.dev.jsonl") for run in (trained, other)]
    right = [[row["label"] == row["prediction"] for row in run] for run in stored]
    by_name = dict(zip((test["a"], test["b"]), right if "starsaber" in test["a"] else right[::-1], strict=True))
    for one, another in ((test["a"], test["b"]), (test["b"], test["a"])):
        count = sum(a and not b for a, b in zip(by_name[one], by_name[another], strict=True))
        assert f"{count} rows: {one} is right, {another} is not" in page.text
    assert next(row["text"] for row, a, b in zip(stored[0], *right, strict=True) if a != b) in page.text
    recur.refused(2, str(output), "compare", trained, other, "--report", output)  # it exists


def test_a_report_without_its_packages_is_refused(
    recur: Recur, trained: Path, tmp_path: Path, without: Callable[..., None]
) -> None:
    without("jinja2")
    line = ("eval", trained, "--report", tmp_path / "x.html")
    recur.refused(2, "--report needs jinja2: pip install 'recurcli[report]'", *line)
    assert not list(tmp_path.iterdir())


def test_without_a_finished_run_there_is_no_page(recur: Recur, trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "runs" / "a")
    (tmp_path / "runs" / "a" / "result.json").unlink()
    recur.refused(2, "not written: no run is finished", "compare", tmp_path / "runs", "--report", tmp_path / "c.html")
    assert not (tmp_path / "c.html").exists()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="there is no chromium")
def test_a_browser_shows_the_page(recur: Recur, trained: Path, evil: Path, tmp_path: Path) -> None:
    """Chromium draws it wide and narrow, light and dark; the ground has the colour of the scheme, and the text another."""
    import matplotlib.image

    recur.ok("eval", trained, "--data", evil, "--report", tmp_path / "r.html", "--quiet")
    chromium = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    for scheme, dark in (("light", False), ("dark", True)):
        for width in (1280, 412):
            picture = tmp_path / f"{scheme}-{width}.png"
            options = [f"--user-data-dir={tmp_path / 'c'}", f"--window-size={width},2400", f"--screenshot={picture}"]
            options += ["--blink-settings=preferredColorScheme=0"] if dark else []
            line = [*chromium, *options, (tmp_path / "r.html").as_uri()]
            subprocess.run(line, check=True, capture_output=True, timeout=120)
            pixels = matplotlib.image.imread(picture)[..., :3].mean(axis=2)
            ground, ink = pixels[2, 2], (pixels.min() if not dark else pixels.max())
            assert (ground < 0.2) == dark
            assert abs(ink - ground) > 0.6
            assert (abs(pixels - ground) > 0.3).mean() > 0.005, "the page is empty"
            assert (abs(pixels[:, -6:] - ground) < 0.1).all(), "something is wider than the window"


def test_of_many_classes_the_weakest_are_printed_and_the_map_has_those_with_most_confusions(
    recur: Recur, tmp_path: Path
) -> None:
    rows = [f"w{c} w{c}a n{n},class_{c:02}\n" for c in range(40) for n in range(6)]
    taken = [f"w{c + 1} w{c + 1}a,class_{c:02}\n" for c in range(0, 12, 2)]  # looks like the next class
    (tmp_path / "train.csv").write_text("text,label\n" + "".join(rows))
    (tmp_path / "new.csv").write_text("text,label\n" + "".join(taken + rows[: 6 * 36]))
    recur.ok("finetune", tmp_path / "train.csv", "--preset", "linear-custom", "--output", tmp_path / "run", "--quiet")
    line = ("eval", tmp_path / "run", tmp_path / "new.csv", "--report", tmp_path / "r.html", "--overwrite")
    out, err = recur.ok(*line)
    shown = re.findall(r"^ +(class_\d\d) +\d+\.\d +\d", out, re.MULTILINE)
    assert len(shown) == 20 and {f"class_{c:02}" for c in range(12)} < {*shown}
    assert "without rows: 'class_36', 'class_37', 'class_38', 'class_39'" in out
    assert "class_36" not in err
    assert len(re.findall(r"^ +class_\d\d +\d+\.\d", recur.ok(*line, "--verbose")[0], re.MULTILINE)) == 40
    page = (tmp_path / "r.html").read_text()
    head, *lines = page.partition('class="confusion"')[2].partition("</table>")[0].split("<tr")[1:]
    names = [re.findall(r'<th scope="row">(\w+)', line)[0] for line in lines]
    assert names == re.findall(r'<th scope="col">(\w+)', head) and len(names) == 25
    assert {f"class_{c:02}" for c in range(12)} < {*names} and "Of 40 classes it has the 25" in page
    assert re.search('href="#rows-0-1">1<', lines[0])
