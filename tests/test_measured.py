"""`presets/results.py` writes the tables and numbers of the documents, from what was measured, and notices what was changed."""

import itertools
import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

import pytest

PRESETS = Path(__file__).resolve().parent.parent / "presets"
SCRIPT = runpy.run_path(str(PRESETS / "results.py"))
DOCUMENTS = {
    path.relative_to(PRESETS.parent).as_posix(): path.read_text(encoding="utf-8") for path in SCRIPT["DOCUMENTS"]
}
MARKED: re.Pattern[str] = SCRIPT["MARKED"]
GIVEN = {"3.11", "2.13", "5 %"}
"""Numbers of README.md that nothing measures: versions, and the share of labels that are swapped."""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_script_changes_no_document(name: str) -> None:
    same = SCRIPT["written"](DOCUMENTS[name]) == DOCUMENTS[name]
    assert same, f"{name} does not have what was measured: run python presets/results.py"


@pytest.mark.parametrize("table", ["several-labels", "numbers-default", "recurrence", "rows-of-ones-own"])
def test_a_changed_cell_is_written_over(table: str) -> None:
    [document] = [text for text in DOCUMENTS.values() if f"<!-- table: {table} -->" in text]
    start = document.index(f"<!-- table: {table} -->")
    (digit,) = re.findall(r"\.(\d)", document[start:])[:1]
    place = document.index(f".{digit}", start) + 1
    assert place < document.index("<!-- end -->", start)
    line, end = document.rindex("\n", 0, start) + 1, document.index("<!-- end -->", start) + len("<!-- end -->")
    changed = document[line:place] + str((int(digit) + 1) % 10) + document[place + 1 : end]
    assert changed != document[line:end] == SCRIPT["written"](changed)


def copied(folder: Path) -> Path:
    """Copy what the script reads."""
    shutil.copytree(PRESETS, folder / "presets", ignore=shutil.ignore_patterns("examples", "*.png", "__pycache__"))
    return folder / "presets"


def tables_of(presets: Path) -> dict[str, Any]:
    """Return the tables of a copy of the presets."""
    return runpy.run_path(str(presets / "results.py"))["TABLES"]


def test_a_changed_bit_of_a_stored_run_changes_the_table_of_its_claim(tmp_path: Path) -> None:
    presets = copied(tmp_path)
    run = presets / "papers/results/recurrence/parity/rsa/11.json"
    kept = json.loads(run.read_text())
    kept["right"] = f"{'00' * 25}{kept['right'][50:]}"
    run.write_text(json.dumps(kept))
    head, _, parity, _ = tables_of(presets)["claims-recurrence"]().splitlines()
    shown = DOCUMENTS["presets/papers/README.md"].splitlines()
    assert head in shown and parity not in shown


@pytest.mark.parametrize(
    ("stored", "keys", "table"),
    [
        ("baselines/results.json", ("tags", "models", "default", "micro_f1", 0), "several-labels-default"),
        ("results/rows-ocnli.json", ("results", "ocnli", "score"), "ocnli-ensemble"),
        ("results/suspects.json", ("results", "tnews", "right"), "recall-of-suspects"),
        ("papers/results/recurrence/lengths.json", ("parity", "rnn", "test-long", 0, 9), "parity-rnn"),
    ],
)
def test_a_changed_number_of_a_stored_file_changes_the_document(
    stored: str, keys: tuple[str | int, ...], table: str, tmp_path: Path
) -> None:
    presets = copied(tmp_path)
    content = json.loads((presets / stored).read_text())
    *way, last = keys
    inner = content
    for key in way:
        inner = inner[key]
    inner[last] = 0.123 if isinstance(inner[last], float) else inner[last] + 100
    (presets / stored).write_text(json.dumps(content))
    shown = [found[3] for text in DOCUMENTS.values() for found in MARKED.finditer(text) if found[2] == table]
    assert shown and tables_of(presets)[table]() not in shown


def test_what_is_stored_is_what_the_script_measures() -> None:
    measurements = runpy.run_path(str(PRESETS / "measure.py"))["MEASUREMENTS"]
    stored = {path.stem: json.loads(path.read_text()) for path in (PRESETS / "results").glob("*.json")}
    assert stored and stored.keys() <= measurements.keys()
    for name, found in stored.items():
        assert found["command"] == f"python presets/measure.py {name}"
        assert found["machine"]["processor"] and found["versions"]["recurcli"] and found["results"]


def test_every_table_stands_in_a_document_and_no_mark_is_left_open() -> None:
    together = "\n".join(DOCUMENTS.values())
    assert {found[2] for found in MARKED.finditer(together)} == set(SCRIPT["TABLES"])
    rest = MARKED.sub("", together)
    assert "<!-- table:" not in rest and "<!-- end -->" not in rest


def test_a_number_within_a_sentence_does_not_begin_a_line() -> None:
    """A comment that begins a line of Markdown ends the paragraph."""
    for text in DOCUMENTS.values():
        for found in MARKED.finditer(text):
            before = text[: found.start()].rpartition("\n")[2]
            assert (before == "") is ("\n" in found[3]), found[0]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_no_table_of_numbers_is_written_by_hand(name: str) -> None:
    rest = MARKED.sub("", DOCUMENTS[name])
    assert [line for line in rest.splitlines() if line.startswith("|") and re.search(r"\d\.\d", line)] == []


def test_no_measured_number_of_the_readme_is_written_by_hand() -> None:
    rest = re.sub(r"```.*?```", "", MARKED.sub("", DOCUMENTS["README.md"]), flags=re.DOTALL)
    prose = re.sub(r"\]\([^)]*\)", "]", rest)
    assert set(re.findall(r"\d+\.\d+|\d+ %", prose)) <= GIVEN


def test_a_claim_without_its_words_is_refused() -> None:
    kept, claims = SCRIPT["kept_claims"], SCRIPT["claims"]()["recurrence"]
    removed = claims["kept"].pop()
    try:
        with pytest.raises(ValueError, match="recurrence has no claim on tomita-5"):
            kept("recurrence")
    finally:
        claims["kept"].append(removed)


def test_a_kept_claim_without_its_runs_is_refused(tmp_path: Path) -> None:
    presets = copied(tmp_path)
    for kind in ("claim", "json"):
        (presets / f"papers/results/rsa/3-treebank.{kind}").unlink()
    with pytest.raises(ValueError, match="rsa has a kept claim on 3-treebank, and results/rsa no test of it"):
        tables_of(presets)["claims-rsa"]()


def test_the_claims_of_every_paper_have_a_table(tmp_path: Path) -> None:
    presets = copied(tmp_path)
    with (presets / "papers/claims.yaml").open("a") as file:
        file.write("\nanother-paper:\n  kept: []\n  told: []\n")
    assert tables_of(presets).keys() - SCRIPT["TABLES"].keys() == {"claims-another-paper", "told-another-paper"}


def test_every_measurement_is_shown_once_it_is_stored(tmp_path: Path) -> None:
    presets = copied(tmp_path)
    peer = {"name": "torch", "is_peer": True, "parameters": 3.2e6, "tokens_per_second": 1000.4, "ratio": 1.0}
    own = {**peer, "name": "starsaber", "is_peer": False, "parameters": 1.1e6, "tokens_per_second": 2500, "ratio": 2.5}
    bench = {"results": {"bench": {"settings": [{"candidates": [peer, own]}]}}}
    speeds = {"the ensemble": {"rows": 12_000, "rows a CPU second": [2000, 900, 1234]}}
    tables = tables_of(presets)
    assert [tables[name]() for name in ("speed-width", "speed-long", "prediction")] == ["", "", ""]
    for name, stored in (("speed-width", bench), ("speed-long", bench), ("prediction", {"results": speeds})):
        (presets / f"results/{name}.json").write_text(json.dumps(stored))
    lines = [tables[name]().splitlines()[2:] for name in ("speed-width", "speed-long", "prediction")]
    beside_peers = ["| `starsaber` | 1.1 M | 2,500 | 2.50 |", "| torch | 3.2 M | 1,000 | 1.00 |"]
    assert lines == [beside_peers, beside_peers, ["| the ensemble | 12,000 | 1,230 |"]]


def test_a_run_of_another_machine_or_version_is_trained_again(tmp_path: Path) -> None:
    script = runpy.run_path(str(PRESETS / "measure.py"))
    names, commands = script["trained"].__globals__, list[str]()

    def run(command: str) -> Any:
        commands.append(command)
        (tmp_path / "x").mkdir(exist_ok=True)
        result = {"metric": "accuracy", "data": {"train": {"rows": 9}}, "dev": {"accuracy": 0.5}}
        (tmp_path / "x/result.json").write_text(json.dumps(result))
        return script["Spent"]("", 10.0 * len(commands), 80.0)

    names |= {"RUNS": tmp_path, "run": run, "on_what": lambda: {"machine": "one", "versions": {"torch": "2"}}}
    found = [script["trained"]("x", "recur finetune")[0]["cpu_seconds"] for _ in range(2)]
    assert found == [10, 10] and len(commands) == 1
    names["on_what"] = lambda: {"machine": "one", "versions": {"torch": "3"}}
    found = [script["trained"]("x", "recur finetune")[0]["cpu_seconds"] for _ in range(2)]
    assert found == [20, 20] and len(commands) == 2


def test_the_results_have_5000_words_at_most() -> None:
    assert len(DOCUMENTS["presets/RESULTS.md"].split()) <= 5000


def test_the_kept_rows_of_a_run_give_its_kept_accuracy() -> None:
    results, unpacked = PRESETS / "papers/results", runpy.run_path(str(PRESETS / "papers/kept.py"))["unpacked"]
    compared = 0
    for table in (json.loads(path.with_suffix(".json").read_text()) for path in results.glob("*/*.claim")):
        for run in itertools.chain(*(group["runs"] for group in table["groups"])):
            kept = json.loads((results / f"{run}.json").read_text())
            if "right" in kept:
                scores, rows = kept["result"][table["split"]], kept["result"]["data"][table["split"]]["rows"]
                assert unpacked([kept["right"]], rows).mean() == pytest.approx(scores["accuracy"], abs=1e-9), run
                compared += 1
    assert compared > 50
