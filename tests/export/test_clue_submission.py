"""A CLUE submission is the same bytes each time, holds what CLUE wants, and a zip that would score 0 says why."""

import hashlib
import json
import os
import random
import re
import stat
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recurcli.data.tasks import TASKS
from recurcli.errors import DataError
from recurcli.export.clue import Finding, submission_bytes, validate, write_submission

AFQMC, OCNLI = "afqmc_predict.json", "ocnli_50k_predict.json"
AFQMC_LABELS = ["0", "1", "1"] * 1_287
OCNLI_LABELS = ["neutral", "entailment", "contradiction"] * 1_000
GOOD = submission_bytes(AFQMC_LABELS)


def errors(found: list[Finding]) -> list[str]:
    return [finding.message for finding in found if finding.level == "error"]


def only_error(path: Path) -> str:
    messages = errors(validate(path))
    assert len(messages) == 1, messages
    return messages[0]


def zipped(
    path: Path, members: Mapping[str, bytes] | list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED
) -> Path:
    pairs = members.items() if isinstance(members, Mapping) else members
    with zipfile.ZipFile(path, "w", method) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile warns about a name given twice
        for name, content in pairs:
            archive.writestr(name, content)
    return path


def test_what_is_written_is_found_good(tmp_path: Path) -> None:
    write_submission(tmp_path / "a.zip", {OCNLI: OCNLI_LABELS, AFQMC: AFQMC_LABELS})
    [finding] = validate(tmp_path / "a.zip")
    assert finding.level == "information"
    assert "no predictions for cluewsc, cmnli, csl, iflytek, tnews" in finding.message


def test_a_full_set_of_tasks_leaves_nothing_to_say(tmp_path: Path) -> None:
    predictions = {}
    for task in TASKS.values():
        for split, name in task.submissions.items():
            rows = task.rows[split]
            predictions[name] = [task.labels[row % len(task.labels)] for row in range(rows)]
    write_submission(tmp_path / "a.zip", predictions)
    assert validate(tmp_path / "a.zip") == []


def test_the_zip_holds_the_files_flat_sorted_and_dated_alike(tmp_path: Path) -> None:
    write_submission(tmp_path / "a.zip", {OCNLI: OCNLI_LABELS, AFQMC: AFQMC_LABELS})
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        members = archive.infolist()
        assert [member.filename for member in members] == [AFQMC, OCNLI]
        assert archive.read(AFQMC) == GOOD
    assert {member.date_time for member in members} == {(1980, 1, 1, 0, 0, 0)}
    assert {stat.filemode(member.external_attr >> 16) for member in members} == {"-rw-r--r--"}


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from recurcli.export.clue import write_submission\n"
        f"labels = {{{AFQMC!r}: ['0', '1', '1'] * 1_287, {OCNLI!r}: ['neutral', 'entailment'] * 1_500}}\n"
        "write_submission(Path(sys.argv[1]), {name: labels[name] for name in set(labels)})"
    )
    digests = set()
    for seed, zone in (("1", "UTC"), ("2", "Asia/Shanghai")):
        path = tmp_path / f"{seed}.zip"
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TZ": zone}
        subprocess.run([sys.executable, "-c", code, str(path)], check=True, env=environment)
        digests.add(hashlib.sha256(path.read_bytes()).hexdigest())
    assert len(digests) == 1


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32))
def test_labels_come_back_as_they_were_given(tmp_path: Path, seed: int) -> None:
    labels = random.Random(seed).choices(["0", "1"], k=3_861)
    write_submission(tmp_path / "a.zip", {AFQMC: labels})
    assert errors(validate(tmp_path / "a.zip")) == []
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        lines = archive.read(AFQMC).decode().split("\n")
    assert [json.loads(line) for line in lines[:-1]] == [
        {"id": row, "label": label} for row, label in enumerate(labels)
    ]
    assert lines[-1] == ""


@pytest.mark.parametrize(
    ("name", "labels", "reason"),
    [
        (AFQMC, ["0", "2", *AFQMC_LABELS[2:]], "afqmc_predict.json line 2: label '2' is not one of the 2 labels"),
        (AFQMC, ["0"], "has 1 rows; test.json has 3,861"),
        ("tnews_predict.json", ["100"], "did you mean 'tnews11_predict.json'"),
        ("../afqmc_predict.json", AFQMC_LABELS, "CLUE reads no file named '../afqmc_predict.json'"),
    ],
)
def test_an_older_zip_stays_when_the_new_one_is_wrong(
    name: str, labels: list[str], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "a.zip").write_bytes(b"older")
    with pytest.raises(DataError, match=re.escape(reason)):
        write_submission(tmp_path / "a.zip", {name: labels})
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.zip", b"older")]


def test_a_single_class_is_no_reason_to_refuse(tmp_path: Path) -> None:
    write_submission(tmp_path / "a.zip", {AFQMC: ["0"] * 3_861})
    assert "warning" in [finding.level for finding in validate(tmp_path / "a.zip")]


def test_tells_a_zip_from_a_file_by_its_bytes(tmp_path: Path) -> None:
    assert errors(validate(zipped(tmp_path / "no-suffix", {AFQMC: GOOD}))) == []
    (tmp_path / AFQMC).write_bytes(GOOD)
    assert validate(tmp_path / AFQMC) == []
    (tmp_path / "text.zip").write_bytes(GOOD)
    assert "text.zip: is not a zip that can be read" in errors(validate(tmp_path / "text.zip"))[0]


@pytest.mark.parametrize(
    ("name", "reason"), [("none.zip", "does not exist"), ("fifo", "not a plain file"), (".", "not a plain file")]
)
def test_a_path_that_is_no_file(name: str, reason: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(DataError, match=reason):
        validate(tmp_path / name)


def test_faults_inside_are_told_by_file_and_line(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {AFQMC: GOOD.replace(b'"1"', b'"2"', 1), OCNLI: b""})
    outside, inside = errors(validate(path))
    assert outside.startswith("afqmc_predict.json line 2: label '2'")
    assert inside.startswith("ocnli_50k_predict.json: has 0 rows")


@pytest.mark.parametrize(
    "name",
    [
        *(folder + AFQMC for folder in ("submit/", "submit/deep/", "../", "/", "submit\\")),
        *("submit/", "__MACOSX/._afqmc_predict.json", ".DS_Store", "Thumbs.db", "._afqmc_predict.json"),
        *("readme.txt", "afqmc_predict.json.bak", "inner.zip"),
    ],
)
def test_what_is_no_prediction_file_at_the_top_is_named(tmp_path: Path, name: str) -> None:
    path = zipped(tmp_path / "a.zip", {OCNLI: submission_bytes(OCNLI_LABELS), name: GOOD})
    assert only_error(path).startswith(f"a.zip: holds '{name}', where CLUE reads nothing; ")


def test_members_of_tasks_outside_the_table_are_left_unread(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {AFQMC: GOOD, "cmrc2018_predict.json": b"\xff"})
    assert errors(validate(path)) == []


def test_hostile_names_are_shown_escaped(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"\x1b[2J\u202etxt.json": GOOD, "\x1b]0;x\x07": b"", AFQMC: GOOD})
    text = "".join(finding.message for finding in validate(path))
    assert r"\x1b[2J\u202etxt.json" in text
    assert not {"\x1b", "\u202e", "\x07"} & set(text)


def test_a_name_that_hides_its_end_behind_a_nul(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"afqmc_predict.json_evil": GOOD})
    path.write_bytes(path.read_bytes().replace(b"json_evil", b"json\0evil"))
    assert r"holds 'afqmc_predict.json\x00evil', where CLUE reads nothing" in only_error(path)


def patched(path: Path, offset: int, value: int, form: str) -> Path:
    """Change a field of the only member's entry in the central directory, and the same field of its own header."""
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\1\2")
    struct.pack_into(form, content, entry + offset, value)
    struct.pack_into(form, content, offset - 2, value)  # the header at the file's start lacks `version made by`
    path.write_bytes(content)
    return path


def test_members_that_not_every_reader_opens(tmp_path: Path) -> None:
    encrypted = patched(zipped(tmp_path / "a.zip", {AFQMC: GOOD}), offset=8, value=1, form="<H")
    link = zipfile.ZipInfo(AFQMC)
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
    rare = [zipped(tmp_path / f"{kind}.zip", {AFQMC: GOOD}, kind) for kind in (zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2)]
    for path in (encrypted, tmp_path / "b.zip", *rare):
        assert "'afqmc_predict.json' is a link, encrypted, or compressed in a rare way" in only_error(path)


def test_a_member_that_declares_too_much(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {AFQMC: b"\n" * (9 << 20)})
    assert path.stat().st_size < 20_000
    assert "'afqmc_predict.json' is larger than 8,388,608 bytes" in only_error(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_member_that_is_larger_than_it_declares(tmp_path: Path, method: int) -> None:
    for content in (b"\n" * (9 << 20), GOOD):
        path = patched(zipped(tmp_path / "a.zip", {AFQMC: content}, method), 24, 100, "<I")
        assert "'afqmc_predict.json' is damaged: Bad CRC-32" in only_error(path)


def test_a_damaged_member(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {AFQMC: GOOD}, zipfile.ZIP_STORED)
    path.write_bytes(path.read_bytes().replace(b'"id": 7', b'"id": 8', 1))
    assert "'afqmc_predict.json' is damaged: Bad CRC-32" in only_error(path)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([], "a.zip: is empty"),
        ([(AFQMC, GOOD)] * 2, "a.zip: holds 'afqmc_predict.json' more than once"),
        ([(AFQMC, GOOD), ("afqmc.json", GOOD)], "afqmc.json: CLUE reads no file named 'afqmc.json'"),
    ],
)
def test_members_that_are_none_twice_or_unknown(members: list[tuple[str, bytes]], message: str, tmp_path: Path) -> None:
    assert errors(validate(zipped(tmp_path / "a.zip", members)))[0].startswith(message)


def test_a_zip_of_too_many_members(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {f"{row}.txt": b"" for row in range(500)})
    many, foreign = errors(validate(path))
    assert many == "a.zip: has 500 members; only the first 32 were looked at"
    assert foreign.startswith("a.zip: holds '0.txt'") and foreign.endswith("(and 31 more)")


def test_a_zip_too_large_is_not_opened(tmp_path: Path) -> None:
    with (tmp_path / "a.zip").open("wb") as file:
        file.truncate(17 << 20)
    assert "is larger than 16,777,216 bytes" in only_error(tmp_path / "a.zip")


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_damage_makes_it_raise(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(zipped(tmp_path / "a.zip", {AFQMC: GOOD[:200], "x/y.json": b"{}"}).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "b.zip").write_bytes(content[: data.draw(st.integers(0, len(content)))])
    for finding in validate(tmp_path / "b.zip"):
        assert finding.message.isprintable()


def test_reading_a_zip_leaves_nothing_on_the_disk(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"../outside.json": b"{}", "submit/" + AFQMC: GOOD})
    before = sorted(tmp_path.parent.rglob("*"))
    validate(path)
    assert sorted(tmp_path.parent.rglob("*")) == before
