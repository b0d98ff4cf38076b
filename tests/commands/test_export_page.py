"""`recur export --format html`: a page that labels texts as Python does from its weights, in node and in a browser."""

import csv
import hashlib
import json
import random
import re
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import CHROMIUM, Page
from cases import examples, slow_but
from predicting import Recur, tsv
from small_runs import weighted

from recurcli.cli import run
from recurcli.commands.predict import _explanation
from recurcli.errors import ModelError
from recurcli.evaluation.predictor import Predictor
from recurcli.export.html import _SEAL, read_page
from recurcli.linear.packed import CASED, IGNORED, character_table, from_bytes, to_bytes
from recurcli.metrics import percent

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node, which runs the page's script")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
ODD = (
    *(
        "İ",
        "Σ",
        "ΑΣ",
        "ΟΔΟΣ. ",
        "ΑΣ'Α",
        "ﬁ",
        "ß",
        "ẞ",
        "ǅ",
        "ⅷ",
        "²",
        "٣",
        "Ⓐ",
        "𐐀",
        "\x1c",
        "\x1d",
        "\x1e",
        "\x1f",
        "\x85",
    ),
    *("\ufeff", "\u200c", "\u200d", "\u3000", "\u00a0", "\0", "\n", "\r\n", " ", "  ", "\ud800", "\udfff", "\u202e"),
    *("👩‍👩‍👧", "🇩🇪", "☃", "©", "e\u0301", "हिन्दी ", "क्षि", "السَّلَام", "ไทยก็", "_", "'", ".", "·", "ʰ", "\u0345"),
    *("good ", "bad", " cat", "dog. ", "鼠", "龙蛇", "\U000e0041"),
)
WORDS = {
    "a": "good fine cat great",
    "b": "bad poor dog worse",
    "</script><img src=x onerror=alert(1)>": "left over stone",
}
CASES: dict[str, list[str]] = {
    "one": ["--set", "finetuning.thresholds=macro_f1", "--set", "linear.characters=[2,5]"],
    "inside-words": [
        "--set",
        "linear.characters=[1,4]",
        "--set",
        "linear.across_words=false",
        "--set",
        "linear.words=null",
    ],
    "pairs": ["--text", "text", "--pair", "second", "--set", "linear.characters=[1,3]", "--set", "linear.words=[1,2]"],
    "several": ["--label", "tags", "--set", "linear.words=[1,2]"],
    "number": ["--label", "size", "--set", "linear.words=[1,2]"],
}


def write_training(path: Path, rows: int = 240) -> Path:
    """A CSV with texts, one label, several, and a number; the texts have words of their label and others."""
    draw = random.Random(3)
    every = " ".join(WORDS.values()).split()
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "second", "label", "tags", "size"])
        for _ in range(rows):
            label = draw.choice([*WORDS])
            words = [
                draw.choice(WORDS[label].split() if draw.random() < 0.7 else every) for _ in range(draw.randint(2, 9))
            ]
            tags = [own[:1] for own in WORDS if set(words) & set(WORDS[own].split())]
            second = " ".join(draw.sample(every, 3))
            writer.writerow([" ".join(words), second, label, ";".join(tags), len(words) + draw.random()])
    return path


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Returns the page of a case, which is trained and exported once."""
    folder = tmp_path_factory.mktemp("pages")
    data = write_training(folder / "rows.csv")

    def page(case: str) -> Path:
        path = folder / f"{case}.html"
        if not path.exists():
            named = CASES[case] if "--label" in CASES[case] else ["--label", "label", *CASES[case]]
            named = named if "--text" in named else ["--text", "text", *named]
            line = ["finetune", str(data), "--preset", "linear-custom", "--output", str(folder / case), "--quiet"]
            assert run([*line, "--set", "linear.vectors=null", *named]) == 0
            assert run(["export", str(folder / case), "--format", "html", "--output", str(path), "--quiet"]) == 0
        return path

    return page


def odd_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of odd pieces, of all of Unicode, and of 60,000 and more characters; none has two surrogates side by side."""
    draw, texts = random.Random(seed), ["", "x" * 65_535 + "Σ good", "😀" * 65_535 + "Ab", "good cat " * 7_000]
    for _ in range(count):
        pieces = [
            draw.choice(ODD) if draw.random() < 0.8 else chr(draw.randrange(0x110000))
            for _ in range(draw.randrange(20))
        ]
        texts.append(re.sub("([\ud800-\udfff])(?=[\ud800-\udfff])", r"\1-", "".join(pieces)))
    return texts


def answers_of(page: Path, rows: Sequence[Sequence[str]], *arguments: str) -> list[dict[str, Any]]:
    """Return what the page's script answers to rows, in node."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    program = ["node", str(Path(__file__).with_name("page.cjs")), str(page), *arguments]
    done = subprocess.run(program, input=lines, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()[1:]]


def check_equal(page: Path, count: int, *, explained: bool = True) -> None:
    predictor, _, _ = read_page(page)
    texts, is_pair = odd_texts(count), bool(predictor.source.columns.pair)
    rows = [(text, other if is_pair else None) for text, other in zip(texts, reversed(texts), strict=True)]
    found = answers_of(page, [row if is_pair else row[:1] for row in rows], *["explain"] * explained)  # type: ignore[misc]
    logits, target = predictor.logits_of_pairs(rows), predictor.kept.target
    shares, expected = predictor.kept.probabilities(logits), [*predictor.predictions(logits)]
    own = np.array([answer["shares"] if target.has_labels else [answer["number"]] for answer in found])
    assert own == pytest.approx(shares, abs=1e-5)
    if target.has_labels:
        assert [answer["text"] for answer in found] == [target.text_of(each.label) for each in expected]
    for row, answer, each in zip(rows, found, expected, strict=True) if explained else ():
        if len(row[0]) < 1000:  # long ones take long here
            why = _explanation(predictor, row, each.label)
            wanted = [why[predictor.labels[label]] for label in answer["given"]] if isinstance(why, dict) else [why]
            assert answer["why"] == wanted, row


@needs_node
@pytest.mark.parametrize("case", CASES)
def test_a_page_labels_and_explains_odd_texts_as_python_does(case: str, pages: Callable[[str], Path]) -> None:
    check_equal(pages(case), examples(25))


@pytest.mark.slow
@needs_node
@pytest.mark.parametrize("case", CASES)
def test_a_page_labels_ten_thousand_odd_texts_as_python_does(case: str, pages: Callable[[str], Path]) -> None:
    check_equal(pages(case), 10_000, explained=False)


def test_the_table_of_characters_says_what_python_does() -> None:
    table = character_table()
    properties = np.repeat(table["properties"], np.diff(table["starts"], append=0x110000))
    lower = {int(upper): int(small) for upper, small in zip(table["upper"], table["lower"], strict=True)}
    assert [code for code in range(0x110000) if len(chr(code).lower()) > 1] == [0x130], "the script knows this one"
    draw, places = random.Random(0), [*table["starts"].tolist(), *map(ord, "ΣAaʰ\u0345.'1\u0300")]

    def beside(codes: Sequence[int], step: int, place: int) -> bool:
        around = codes[place + 1 :] if step > 0 else codes[:place][::-1]
        first = next((code for code in around if not properties[code] & IGNORED), 0)
        return bool(properties[first] & CASED)

    for _ in range(5_000):
        codes = [draw.choice(places) for _ in range(3)] + [0x3A3] + [draw.choice(places) for _ in range(3)]
        text = "".join(chr(code) for code in codes if code != 0x130)
        codes = [*map(ord, text)]
        small = [lower.get(code, code) for code in codes]
        for place in (place for place, code in enumerate(codes) if code == 0x3A3):
            small[place] = 0x3C2 if beside(codes, -1, place) and not beside(codes, 1, place) else 0x3C3
        assert text.lower() == "".join(map(chr, small))


def test_predict_reads_a_page_and_gives_the_labels_of_its_run(
    recur: Recur, pages: Callable[[str], Path], tmp_path: Path
) -> None:
    page, texts = pages("one"), tmp_path / "texts.txt"
    texts.write_text("good great cat\npoor worse dog\nstone over\n")
    out, _ = recur.ok("predict", page, texts, "--explain", "--quiet")
    of_run, _ = recur.ok("predict", page.with_suffix(""), texts, "--explain", "--quiet")
    found, wanted = tsv(out), tsv(of_run)
    assert [(line[0], line[1], line[3]) for line in found] == [(line[0], line[1], line[3]) for line in wanted]
    assert [float(line[2]) for line in found] == pytest.approx([float(line[2]) for line in wanted], abs=0.02)


def test_a_page_has_no_local_path_and_no_markup_of_labels(pages: Callable[[str], Path]) -> None:
    text = pages("one").read_text(encoding="utf-8")
    assert str(pages("one").parent) not in text
    assert "<img" not in text and text.count("</script>") == 3
    policy = re.search('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert re.fullmatch(
        r"default-src 'none'; script-src 'sha256-[^']*'; style-src 'sha256-[^']*'; base-uri 'none'; form-action 'none'",
        policy[1],
    )


@pytest.mark.parametrize(
    "change", [lambda c: c[:-1000], lambda c: c.replace(b"Label many", b"Label more"), lambda c: c[:3000]]
)
def test_a_page_that_was_cut_or_edited_is_refused(
    change: Callable[[bytes], bytes], recur: Recur, pages: Callable[[str], Path], tmp_path: Path
) -> None:
    content = pages("one").read_bytes()
    (tmp_path / "page.html").write_bytes(change(content))
    texts = tmp_path / "texts.txt"
    texts.write_text("good\n")
    recur.refused(4, "page.html: was cut or edited; a page is read as", "predict", tmp_path / "page.html", texts)
    recur.refused(4, "texts.txt: is not a run directory, and no page", "predict", texts, texts)


def sealed(page: bytes) -> bytes:
    """A page with the sha256 of what it now is, as a stranger can make one."""
    return page + _SEAL + hashlib.sha256(page).hexdigest().encode() + b" -->\n"


def of_weights(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    """Returns a change of a page in which the arrays of its weights are changed."""

    def changed(page: bytes) -> bytes:
        def replaced(found: re.Match[bytes]) -> bytes:
            arrays = from_bytes(b64decode(found[2]), Path("page.html"))
            change(arrays)
            return found[1] + b64encode(to_bytes(arrays))

        return re.sub(rb'(id="model">)([^<]*)', replaced, page, count=1)

    return changed


@pytest.mark.parametrize(
    "change",
    [
        of_weights(lambda arrays: arrays.pop("rest")),
        of_weights(lambda arrays: arrays.update(rest=arrays["rest"][1:])),
        of_weights(lambda arrays: arrays.update(records=arrays["records"] + np.uint32(1 << 20))),
        of_weights(lambda arrays: arrays.update(records=arrays["records"].astype(np.float32))),
        of_weights(lambda arrays: arrays.update(bias=arrays["bias"][1:])),
        lambda page: page.replace(b'"slopes"', b'"kept": 5, "slopes"'),
        lambda page: re.sub(rb'"id2label": \{[^}]*\}', b'"id2label": {"0": "a"}', page),
        lambda page: re.sub(rb'id="model">.{100}', b'id="model">', page),
    ],
)
def test_a_page_of_a_stranger_is_refused_in_one_line(
    change: Callable[[bytes], bytes], pages: Callable[[str], Path], tmp_path: Path
) -> None:
    page, _, _ = pages("one").read_bytes().rpartition(_SEAL)
    edited = change(page)
    assert edited != page
    (tmp_path / "page.html").write_bytes(sealed(edited))
    with pytest.raises(ModelError, match=r"page\.html"):
        read_page(tmp_path / "page.html")


def test_a_size_leaves_out_the_smallest_weights_and_says_the_points(
    recur: Recur, pages: Callable[[str], Path], tmp_path: Path
) -> None:
    source, whole = pages("one").with_suffix(""), pages("one").stat().st_size
    line = ("export", source, "--format", "html", "--output", tmp_path / "small.html")
    limit = f"{whole / 1e6:.4f}"
    _, err = recur.ok(*line, "--max-size", limit, "--min-agreement", "0")
    assert re.search(r"n-grams fit in .* MB; those with the smallest weights are left out", err)
    assert (tmp_path / "small.html").stat().st_size <= float(limit) * 1e6
    small, full = (read_page(path)[0].linear for path in (tmp_path / "small.html", pages("one")))
    assert small is not None and full is not None
    kept = np.isin(full.ngrams.keys, small.ngrams.keys)
    size = full.ngrams.weights * np.abs(full.weights).max(axis=1)
    assert 0 < kept.sum() < len(kept) and size[kept].min() >= 0.99 * size[~kept].max()
    again = (*line, "--overwrite")
    recur.refused(2, "--max-size 0.03: has no room for n-grams", *again, "--max-size", "0.03", "--min-agreement", "0")


def test_an_ensemble_gives_its_linear_model_and_says_what_is_left_out(
    recur: Recur, trained: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    line = ("export", trained, "--format", "html", "--output", page)
    _, err = recur.ok(*line)
    assert "the encoder of the run's ensemble is left out; `recur export --format onnx` has it" in err
    assert "The encoder of the run&#x27;s ensemble is left out" in page.read_text(encoding="utf-8")
    with_run = re.search(r"with the run ([\d.]+) %", err)
    assert with_run is not None
    differs = "warning: the page gives other labels than the run; its accuracy is "
    assert (differs in err) == (float(with_run[1]) < 98)
    predictor, _, _ = read_page(page)
    texts = [("鼠牛虎龙", None), ("猴鸡狗", None), ("", None)]
    fast = Predictor.load(trained, fast=True)
    logits = [each.kept.probabilities(each.logits_of_pairs(texts)) for each in (predictor, fast)]
    assert logits[0] == pytest.approx(logits[1], abs=0.02)
    recur.refused(2, "--data: the linear model has no static vectors", *line, "--overwrite", "--data", trained)


def test_an_encoder_alone_has_no_page(recur: Recur, trained: Path, tmp_path: Path) -> None:
    source = weighted(trained, tmp_path / "run", 1, 0)
    reason = "the model is the encoder alone, and a page holds a linear model; --format onnx exports the encoder"
    recur.refused(2, reason, "export", source, "--format", "html", "--output", tmp_path / "x.html")


def test_a_model_with_static_vectors_is_fitted_again_without_them(
    recur: Recur, wordllama: None, tmp_path: Path
) -> None:
    data, source, page = write_training(tmp_path / "rows.csv", 400), tmp_path / "run", tmp_path / "page.html"
    line = (
        "finetune",
        data,
        "--preset",
        "linear-custom",
        "--output",
        source,
        "--text",
        "text",
        "--label",
        "label",
        "--quiet",
    )
    recur.ok(*line, "--set", "linear.vectors=wordllama", "--set", "linear.vector_scale=1")
    export = ("export", source, "--format", "html", "--output", page)
    out, err = recur.ok(*export, "--json")
    assert "it was fitted again without the run's static vectors" in err
    predictor, _, _ = read_page(page)
    assert predictor.linear is not None and predictor.linear.vectors is None
    assert percent(json.loads(out)["agreement_with_run"]) in page.read_text(encoding="utf-8").replace("0 %", " %")
    content = data.read_bytes()
    moved = data.rename(tmp_path / "moved.csv")
    recur.refused(3, "name their place with --data", *export, "--overwrite")
    recur.ok(*export, "--overwrite", "--data", moved)
    moved.write_bytes(content + b"new,new,a,a,3\n")
    recur.refused(3, "is not the file of the", *export, "--overwrite", "--data", moved)


def test_too_little_agreement_writes_no_page(recur: Recur, trained: Path, tmp_path: Path) -> None:
    line = ("export", trained, "--output", tmp_path / "x.html", "--format", "html")
    code, _, err = recur(*line, "--min-agreement", "1")
    with_run = re.search(r"with the run ([\d.]+) %", err)
    assert with_run is not None
    assert (code == 0) == (with_run[1] == "100.00") == (tmp_path / "x.html").exists()
    recur.refused(2, "--quantize: a page has no choice of weights", *line, "--quantize", "int8")
    reason = "--max-size: an ONNX export has no largest size; add --format html"
    recur.refused(2, reason, *line[:-1], "onnx", "--max-size", "3")


@needs_chromium
def test_a_browser_labels_a_text_and_a_file_and_asks_nobody(pages: Callable[[str], Path], tmp_path: Path) -> None:
    path = pages("one")
    predictor, _, _ = read_page(path)
    rows = ["good great cat", "left stone", "İΣ"]
    wanted = predictor.predict(rows)
    with Page(tmp_path) as page:
        page.open(path, width=390, dark=True)
        page.wait("lower !== undefined")
        for text, prediction in zip(rows, wanted, strict=True):
            page.type("first", text)
            assert prediction.score is not None
            assert f"{prediction.label}, {percent(prediction.score)} %" in page.text_of("answer").splitlines()[0]
        page.type("least", "100")
        assert page.text_of("answer").startswith("unsure: ")
        page.type("least", "50")
        page.run('open(new File([\'id,text\\n1,"good, ""great""\\ncat"\\n\\n2,left stone\\n\'], "x.csv"))')
        page.wait("document.getElementById('state').innerText === 'x.csv: 3 lines'")
        page.run("document.getElementById('start').click()")
        page.wait("!document.getElementById('labelled').hidden")
        lines = tsv(page.run("document.getElementById('labelled').value"))
        assert lines[0] == ["id", "text", "prediction", "score", "reason"]
        assert [line[:2] for line in lines[1:]] == [["1", 'good, "great" cat'], ["2", "left stone"]]
        own = predictor.predict(['good, "great"\ncat', "left stone"])
        assert [line[2] for line in lines[1:]] == [each.label for each in own]
        assert page.run("document.documentElement.scrollWidth") <= 390, "nothing is wider than a phone"
        assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(23, 23, 27)"
        fields = "[...document.querySelectorAll('input,textarea,select')]"
        unnamed = f"{fields}.filter((each) => !each.labels.length && !each.ariaLabel)"
        assert page.run(f"{unnamed}.length") == 0
        requests = [
            each["params"]["request"]["url"] for each in page.events if each["method"] == "Network.requestWillBeSent"
        ]
        assert requests == [path.resolve().as_uri()]
        faults = [each for each in page.events if each["method"] in ("Log.entryAdded", "Runtime.exceptionThrown")]
        assert not faults, "the policy lets the script and the style run"
        assert page.run("fetch('data:,x').then(() => 'sent', () => 'refused')") == "refused"


@needs_chromium
@pytest.mark.parametrize("case", slow_but(["pairs"], ["pairs", "several", "number"]))
def test_a_browser_labels_pairs_several_labels_and_numbers(
    case: str, pages: Callable[[str], Path], tmp_path: Path
) -> None:
    predictor, _, _ = read_page(pages(case))
    text: Any = ("good cat", "bad dog") if case == "pairs" else "good cat"
    [wanted] = predictor.predict([text])
    with Page(tmp_path) as page:
        page.open(pages(case))
        page.wait("lower !== undefined")
        page.type("second", "bad dog")
        page.type("first", "good cat")
        first = page.text_of("answer").splitlines()[0]
        assert page.run("document.getElementById('pair').hidden") == (case != "pairs")
    if case == "number":
        assert float(first) == pytest.approx(wanted.label, abs=1e-5)
    else:
        assert first.startswith(predictor.kept.target.text_of(wanted.label) or "no label")
