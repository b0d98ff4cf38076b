"""An exported folder in use: its class in threads, its program beside another one, and the server of docs/serving.md."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from predicting import Recur, jsonl, texts, tsv
from test_export_onnx import labelled, module_of
from test_several_and_numbers import LINEAR, weather
from test_several_and_numbers import trained as trained_on_weather
from tiny_task import write_rows

from recurcli.files import extend_manifest

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["", *texts(200, longest=30)]
PYTHON = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "serving.md").read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.fixture(scope="module")
def of_kind(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """The run and the exported folder of a linear model of several labels, and of one of numbers."""
    from recurcli.cli import run

    made = {}
    for kind in ("several", "number"):
        place = tmp_path_factory.mktemp(kind)
        folder, output = trained_on_weather(place, kind, *LINEAR), place / "folder"
        assert run(["export", str(folder), "--format", "onnx", "--output", str(output), "--quiet"]) == 0
        made[kind] = folder, output
    return made


def predicted(recur: Recur, run: Path, rows: list[str], place: Path, *options: object) -> list[dict[str, Any]]:
    """What `recur predict` writes for texts, as JSON."""
    [column] = json.loads((run / "config.json").read_text())["source"]["columns"]["text"]
    write_rows(place / "texts.jsonl", [{column: text} for text in rows])
    return jsonl(recur.ok("predict", run, place / "texts.jsonl", "--quiet", *options)[0])


def test_threads_get_the_labels_and_probabilities_of_predict(
    recur: Recur, trained: Path, exported: Path, tmp_path: Path
) -> None:
    rows = predicted(recur, trained, TEXTS, tmp_path, "--probabilities", "--top-k", 2)
    classifier = module_of(exported).Classifier(exported)
    with ThreadPoolExecutor(8) as pool:
        parts = pool.map(lambda start: classifier.predict(TEXTS[start : start + 5]), range(0, len(TEXTS), 5))
        found = [prediction for part in parts for prediction in part]
    assert [each.label for each in found] == [row["prediction"] for row in rows]
    for each, row in zip(found, rows, strict=True):
        assert each.probabilities == pytest.approx(row["probabilities"], abs=1e-4)
        assert each.score == each.probabilities[each.label]
    for each, row in zip(classifier.predict(TEXTS, top_k=2), rows, strict=True):
        assert [*each.probabilities.values()] == pytest.approx([item["score"] for item in row["top"]], abs=1e-4)
        assert [*each.probabilities.values()] == sorted(each.probabilities.values(), reverse=True)
    assert classifier.predict([]) == []


def test_a_class_says_which_text_is_none(exported: Path) -> None:
    classifier = module_of(exported).Classifier(exported)
    for given, reason in (
        ("龙", "texts is a str; give a list of texts"),
        ({"龙": 1}, "texts is a dict; give a list of texts"),
        (["龙", None], r"texts\[1\] is not a string"),
        ([("龙", "蛇")], r"texts\[0\] is not a string"),
    ):
        with pytest.raises(ValueError, match=reason):
            classifier.predict(given)
    classifier.config["pairs"] = True
    with pytest.raises(ValueError, match=r"texts\[1\] is not a pair of strings"):
        classifier.predict([("龙", "蛇"), "龙"])


def test_a_folder_has_its_own_code_beside_another_folder_and_a_module_of_the_user(
    of_kind: dict[str, tuple[Path, Path]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = of_kind["number"][1]
    other = shutil.copytree(folder, tmp_path / "packages-onnx")
    script = (other / "linear_model.py").read_text()
    (other / "linear_model.py").write_text(script.replace("+ self.bias", "- self.bias - 1"))
    extend_manifest(other, "linear_model.py")
    monkeypatch.setitem(sys.modules, "features", ModuleType("features"))
    monkeypatch.chdir(tmp_path)
    path, names = [*sys.path], dict[str, Any]()
    first = module_of(folder).Classifier(folder).predict(["frost"])
    [code] = [block for block in PYTHON if "packages-onnx" in block and "Starlette" not in block]
    exec(code, names)
    assert names["classifier"].predict(["frost"]) != first
    assert module_of(folder).Classifier(folder).predict(["frost"]) == first
    assert sys.path == path


def test_only_a_missing_package_is_one_to_install(of_kind: dict[str, tuple[Path, Path]], tmp_path: Path) -> None:
    folder = shutil.copytree(of_kind["number"][1], tmp_path / "folder")
    (folder / "linear_model.py").write_text("from .features import nothing")
    extend_manifest(folder, "linear_model.py")
    done = labelled(folder, b"frost\n")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"cannot import name 'nothing'" in done.stderr and b"pip install" not in done.stderr


def test_several_labels_and_numbers_are_those_of_predict(
    recur: Recur, of_kind: dict[str, tuple[Path, Path]], tmp_path: Path
) -> None:
    given = [*(row["text"] for row in weather(150)), ""]
    for kind, options in (("several", ()), ("several", ("--threshold", 0.3)), ("number", ())):
        run, folder = of_kind[kind]
        rows = predicted(recur, run, given, tmp_path, *options)
        threshold = {name.removeprefix("--"): value for name, value in zip(options[::2], options[1::2], strict=True)}
        found = module_of(folder).Classifier(folder).predict(given, **threshold)
        wanted = [row["prediction"] for row in rows]
        assert [[*each.label] if kind == "several" else each.label for each in found] == wanted
        assert {each.score for each in found} == {None}
        # the columns of the program are those of a TSV of `recur predict`
        (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in given))
        out, _ = recur.ok("predict", run, tmp_path / "texts.txt", "--no-header", "--format", "tsv", *options)
        done = labelled(folder, (tmp_path / "texts.txt").read_bytes(), *map(str, options))
        assert tsv(done.stdout.decode()) == [row[1:2] for row in tsv(out)]


def test_numbers_have_no_probabilities(of_kind: dict[str, tuple[Path, Path]]) -> None:
    for option in (("--probabilities",), ("--threshold", "0.5")):
        done = labelled(of_kind["number"][1], b"frost\n", *option)
        assert (done.returncode, done.stdout) == (2, b"")
        assert "it predicts numbers, which have no probabilities; leave out --probabilities" in done.stderr.decode()


@pytest.mark.parametrize(
    "options", [("--probabilities",), ("--threshold", "0.35"), ("--threshold=0.35", "--probabilities")]
)
def test_the_program_has_the_columns_and_words_of_predict(
    options: tuple[str, ...], recur: Recur, trained: Path, exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS[1:]))
    wanted = tsv(recur.ok("predict", trained, tmp_path / "texts.txt", "--no-header", *options)[0])
    found = tsv(labelled(exported, (tmp_path / "texts.txt").read_bytes(), *options).stdout.decode())
    assert len(found) == len(wanted)
    for line, (_, *cells) in zip(found, wanted, strict=True):
        numbers = [place for place, text in enumerate(cells) if re.fullmatch(r"[01]\.\d{6}", text)]
        assert [float(line[place]) for place in numbers] == pytest.approx(
            [float(cells[place]) for place in numbers], abs=1e-4
        )
        assert [text for place, text in enumerate(line) if place not in numbers] == [
            text for place, text in enumerate(cells) if place not in numbers
        ]
    unsure = [line for line in found if not line[0]]
    assert bool(unsure) == ("--probabilities" not in options[0])
    assert all(line[-1] == "the score is below 0.35" for line in unsure)


def test_an_empty_text_has_the_row_of_predict_but_for_its_reason(
    recur: Recur, trained: Path, exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "texts.txt").write_text("\n龙\n")
    out, _ = recur.ok("predict", trained, tmp_path / "texts.txt", "--no-header", "--threshold=0")
    [empty, full] = [line[1:] for line in tsv(out)]
    assert (empty.pop(), full.pop()) == ("its text is empty", "")
    found = tsv(labelled(exported, b"\n\xe9\xbe\x99\n", "--threshold=0").stdout.decode())
    assert [line[0] for line in found] == [empty[0], full[0]] and [line[2] for line in found] == ["", ""]
    assert "no reason beside an empty text" in str(module_of(exported).__doc__)


def test_a_run_in_place_of_an_exported_folder_is_named_as_one(trained: Path, exported: Path) -> None:
    with pytest.raises(
        ValueError, match="is no exported folder; of a run `recur export RUN --output FOLDER` writes one"
    ):
        module_of(exported).Classifier(trained)


def test_every_function_and_class_of_the_folder_says_what_it_does(exported: Path) -> None:
    for name in ("predict.py", "linear_model.py"):
        nodes = ast.walk(ast.parse((exported / name).read_text()))
        named = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
        own = [node for node in named if node.name not in ("__init__", "main", "error", "Parser")]
        assert [node.name for node in own if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("value", ["2", "-0.1", "nan", "high"])
def test_a_threshold_that_is_no_probability_is_one_line(value: str, exported: Path) -> None:
    done = labelled(exported, "龙\n".encode(), f"--threshold={value}")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1)
    assert done.stderr.startswith(b"predict.py: error: ") and b"--threshold" in done.stderr


def test_a_co_process_gets_each_answer_before_it_writes_more(exported: Path) -> None:
    command = [sys.executable, str(exported / "predict.py"), "--unbuffered", "--probabilities"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as child:
        assert child.stdin is not None and child.stdout is not None
        answers = [child.stdout.readline()]
        for text in ("鼠牛虎", "", "龙"):
            child.stdin.write(f"{text}\n".encode())
            answers.append(child.stdout.readline())
        child.stdin.close()
        assert child.wait() == 0
    assert answers == labelled(exported, "鼠牛虎\n\n龙\n".encode(), "--probabilities").stdout.splitlines(keepends=True)


@pytest.mark.parametrize(
    "name", ["config.json", "model.onnx", "linear.npz", "tokenizer.json", "features.py", "manifest.json"]
)
def test_a_damaged_or_missing_file_is_named(name: str, exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "folder")
    content = (folder / name).read_bytes()
    for damage in (content[: len(content) // 2], None):
        (folder / name).unlink() if damage is None else (folder / name).write_bytes(damage)
        done = labelled(folder, "龙\n".encode())
        assert (done.returncode, done.stdout) == (4, b"")
        line = f"predict.py: error: {folder / name}: is missing or damaged; export the run again\n"
        assert done.stderr.decode() == line


def test_the_card_of_a_folder_may_be_edited(exported: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(exported, tmp_path / "folder")
    (folder / "README.md").write_text("mine")
    assert labelled(folder, "龙\n".encode()).returncode == 0


def answer(url: str, content: bytes | None = None) -> tuple[int, Any]:
    """The status and the JSON of a request."""
    try:
        with urllib.request.urlopen(url, content, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, json.load(refused)


@pytest.fixture(scope="module")
def server(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the server of docs/serving.md, started as the page says but for its port."""
    pytest.importorskip("uvicorn")
    pytest.importorskip("starlette")
    [code] = [block for block in PYTHON if "Starlette" in block]
    place = tmp_path_factory.mktemp("server")
    (place / "serve.py").write_text(code, encoding="utf-8")
    (place / "packages-onnx").symlink_to(exported)
    command = [sys.executable, "-m", "uvicorn", "serve:app", "--port", "0", "--limit-concurrency", "1000"]
    environment = {**os.environ, "PYTHONPATH": ""}
    with subprocess.Popen(
        command, cwd=place, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stderr is not None
        for line in child.stderr:
            if found := re.search(r"running on (http://[\d.]+:\d+)", line):
                break
        else:
            pytest.fail("the server did not start")
        yield found[1]
        child.terminate()


def test_a_server_answers_200_requests_at_once_as_predict_does(
    server: str, recur: Recur, trained: Path, tmp_path: Path
) -> None:
    rows = predicted(recur, trained, TEXTS[:200], tmp_path, "--top-k", 3)
    bodies = [json.dumps({"texts": [text, text[::-1]]}).encode() for text in TEXTS[:200]]
    with ThreadPoolExecutor(200) as pool:
        answers = [*pool.map(lambda body: answer(f"{server}/predict", body), bodies)]
    assert {status for status, _ in answers} == {200}
    for (_, found), row in zip(answers, rows, strict=True):
        first, _ = found["predictions"]
        assert first["label"] == row["prediction"]
        assert [*first["probabilities"].values()] == pytest.approx([item["score"] for item in row["top"]], abs=1e-4)


def test_a_server_tells_its_health_and_refuses_what_it_cannot_read(server: str, exported: Path) -> None:
    labels = [*json.loads((exported / "config.json").read_text())["id2label"].values()]
    assert answer(f"{server}/health") == (200, {"labels": labels})
    unread = (b"7", b"[7]", b'"a"', b"5", b"null", b'{"a": 1}')
    for body in (b"", b"\xff", b"[1]", b"{}", *(b'{"texts": %b}' % each for each in unread), b"[" * 100_000):
        status, found = answer(f"{server}/predict", body)
        assert status == 400, body
        assert found["error"].startswith('the request is not JSON like {"texts": ["a text"]}: ')
    for large in (["a" * 1_000_000], [""] * 1001):
        status, found = answer(f"{server}/predict", json.dumps({"texts": large}).encode())
        assert status == 413
        assert found["error"] == "the request has more than 1,000,000 bytes or 1,000 texts; send fewer texts"
    status, found = answer(f"{server}/predict", json.dumps({"texts": [""] * 1000}).encode())
    assert (status, len(found["predictions"])) == (200, 1000)
    assert answer(f"{server}/predict", b'{"texts": []}') == (200, {"predictions": []})
    assert answer(f"{server}/predict", b'{"texts": ["\\ud800"]}')[0] == 200, "a lone surrogate"
