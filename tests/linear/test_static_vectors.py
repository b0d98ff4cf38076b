"""Static vectors in the linear model: their features, the choice of their scale, and runs that keep the table.

Static vectors in the embedding of an encoder, with their tokens.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from class_numbers import fit_model, refit_linear_model, search_hyperparameters
from logs import Kept
from numpy.typing import NDArray
from running import Recur, result_of, saved
from safetensors.numpy import load_file, save_file
from small_runs import fingerprint
from tiny_task import tiny

from recurcli import load
from recurcli.config import LinearConfig
from recurcli.errors import ModelError, UsageError
from recurcli.files import OpenedFile
from recurcli.linear import fitting, static_vectors
from recurcli.linear.explain import explain
from recurcli.linear.model import Hyperparameters, LinearModel
from recurcli.linear.ngram_hashes import NgramConfig
from recurcli.linear.static_vectors import StaticVectors, read_static_vectors, resolve_vectors
from recurcli.preset.compose import compose
from recurcli.runs.network_files import read_model
from recurcli.tokens.tokenizer import Tokenizer
from recurcli.tokens.vectors import principal_components

POSITIVE, NEGATIVE = ([f"{stem}{n}" for n in range(40)] for stem in ("good", "bad"))
NEUTRAL = [f"film{n}" for n in range(20)]
WORDS = ["[UNK]", *POSITIVE, *NEGATIVE, *NEUTRAL]
Rows = list[tuple[str, str | None]]


def table() -> NDArray[np.float32]:
    """A vector for each word: those of one feeling have the same direction, and some noise."""
    drawn = np.random.default_rng(0)
    vectors = drawn.normal(size=(len(WORDS), 8))
    vectors[1:41, 0] += 4
    vectors[41:81, 0] -= 4
    return vectors.astype(np.float32)


def model2vec(folder: Path, vectors: NDArray[np.float32], words: Sequence[str] = WORDS) -> Path:
    """Write a folder as Model2Vec does."""
    folder.mkdir(parents=True)
    vocabulary = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))
    save_file({"embeddings": vectors}, folder / "model.safetensors")
    (folder / "README.md").write_text("---\nlicense: mit\n---\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model2vec(tmp_path_factory.mktemp("vectors") / "m2v", table())


def made_rows(count: int, words: int = 40, seed: int = 0) -> tuple[Rows, list[int]]:
    """Return texts with one word of a feeling, of the first `words` of their class, and their classes."""
    drawn = np.random.default_rng(seed)
    targets = [n % 2 for n in range(count)]
    rows: Rows = []
    for target in targets:
        before, after = drawn.choice(NEUTRAL, 2)
        rows.append((f"{before} {(NEGATIVE, POSITIVE)[target][drawn.integers(words)]} {after}", None))
    return rows, targets


@pytest.fixture
def rows_file(tmp_path: Path) -> Path:
    """300 rows with half of the words of each feeling."""
    path, (rows, targets) = tmp_path / "rows.tsv", made_rows(300, words=20)
    lines = [f"{text}\t{('bad', 'good')[target]}\n" for (text, _), target in zip(rows, targets, strict=True)]
    path.write_text("text\tlabel\n" + "".join(lines), encoding="utf-8")
    return path


def choice(folder: Path, scale: float = 1.0) -> Hyperparameters:
    return Hyperparameters(NgramConfig(words=(1, 1)), 1.0, vectors=str(folder), vector_scale=scale)


def unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    return vector / max(float(np.linalg.norm(vector)), 1e-12)


def test_a_text_has_the_mean_of_its_tokens_and_a_pair_four_vectors(folder: Path) -> None:
    vectors = read_static_vectors(str(folder))
    known = vectors.values * vectors.scales[:, None]
    np.testing.assert_allclose(known, table(), atol=float(np.abs(table()).max()) / 250)

    def mean(text: str) -> NDArray[np.float32]:
        numbers = [WORDS.index(word) if word in WORDS else 0 for word in text.split()]
        return unit(known[numbers].mean(axis=0)) if numbers else np.zeros(8, np.float32)

    texts: Rows = [("good1 film2 film2", None), ("", None), ("never seen bad3", None), ("\ud800 bad1", None)]
    found = vectors.features(vectors.tokenize(texts))
    np.testing.assert_allclose(found, [mean(text) for text, _ in texts], atol=1e-6)
    pairs: Rows = [("good1 film2", "bad1"), ("film1", ""), ("good2", "good2")]
    found = vectors.features(vectors.tokenize(pairs))
    expected = []
    for one, other in pairs:
        u, v = mean(one), mean(other or "")
        expected.append(np.concatenate([u, v, unit(np.abs(u - v)), unit(u * v)]))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_array_equal(vectors.features(vectors.tokenize(pairs), slice(1, 3)), found[1:])


def test_the_model_is_that_of_ngrams_and_features_side_by_side(folder: Path) -> None:
    rows, targets = made_rows(200)
    model = fit_model(rows, targets, 2, choice(folder, 2.0))
    assert model.vectors is not None and model.vector_weights is not None
    plain = LinearModel(model.ngrams, model.weights, model.bias, 200, 0, model.hyperparameters)
    features = model.vectors.features(model.vectors.tokenize(rows))
    np.testing.assert_allclose(model.logits(rows), plain.logits(rows) + features @ model.vector_weights, atol=1e-5)
    one = fit_model(rows, targets, 2, choice(folder, 1.0)).vector_weights
    assert one is not None and np.abs(model.vector_weights).sum() > np.abs(one).sum()
    of_ngrams, of_vectors = (np.abs(np.diff(part)) for part in (plain.logits(rows), features @ model.vector_weights))
    share = pytest.approx(float((of_vectors / (of_vectors + of_ngrams)).mean()), rel=1e-4)
    assert model.facts(rows)["vectors"] == {**model.vectors.about, "scale": 2.0, "share": share}


@pytest.mark.parametrize("solver", ["LinearSVC", "SGD"])
def test_a_word_of_no_training_row_is_understood(folder: Path, solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if solver == "SGD":
        monkeypatch.setattr(fitting, "SVC_WORK", 0)
    rows, targets = made_rows(400, words=20)
    unseen: Rows = [(word, None) for word in (*NEGATIVE[20:], *POSITIVE[20:])]
    of_unseen = np.repeat([0, 1], 20)
    model = fit_model(rows, targets, 2, choice(folder))
    assert model.hyperparameters.solver == solver
    assert (model.logits(unseen).argmax(axis=1) == of_unseen).mean() > 0.9
    again = refit_linear_model(model, *made_rows(500, words=20))
    assert (again.logits(unseen).argmax(axis=1) == of_unseen).mean() > 0.9
    plain = fit_model(rows, targets, 2, choice(folder, 0.0))
    assert plain.vectors is None and len(set(plain.logits(unseen).argmax(axis=1))) == 1


@pytest.mark.parametrize("pairs", [False, True])
def test_sgd_is_stable_where_all_vectors_have_a_direction_in_common(
    pairs: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shifted = model2vec(tmp_path / "shifted", table() + 20)
    rows, targets = made_rows(600)
    if pairs:
        rows = [(text, "film1 film2") for text, _ in rows]
    svc = fit_model(rows, targets, 2, choice(shifted, 2.0)).logits(rows)
    monkeypatch.setattr(fitting, "SVC_WORK", 0)
    sgd = fit_model(rows, targets, 2, choice(shifted, 2.0)).logits(rows)
    assert np.abs(sgd).max() < 2 * np.abs(svc).max()
    assert (sgd.argmax(axis=1) == svc.argmax(axis=1)).mean() > 0.97


def test_a_file_of_the_model_needs_the_table_that_it_was_fitted_with(folder: Path, tmp_path: Path) -> None:
    rows, targets = made_rows(100)
    model = fit_model(rows, targets, 2, choice(folder))
    path, of_vectors = tmp_path / "linear.safetensors", tmp_path / "vectors.safetensors"
    path.write_bytes(model.to_bytes())
    assert model.vectors is not None
    of_vectors.write_bytes(model.vectors.content)
    read = LinearModel.load(OpenedFile(path), lambda: StaticVectors.load(OpenedFile(of_vectors)))
    np.testing.assert_array_equal(read.logits(rows), model.logits(rows))
    assert (read.to_bytes(), read.hyperparameters.vector_scale) == (model.to_bytes(), 1.0)
    other = StaticVectors.quantize(-table(), model.vectors.tokenizer, model.vectors.about)
    with pytest.raises(ModelError, match=r"linear\.safetensors.*static vectors are not those"):
        LinearModel.load(OpenedFile(path), lambda: other)


def test_the_scale_is_chosen_and_0_is_the_model_without(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, targets = made_rows(600, words=40)
    given = LinearConfig(words=(1, 1), characters=None, vectors=str(folder))
    assert search_hyperparameters(rows, targets, 2, given).vector_scale > 0
    few = search_hyperparameters(rows[:4], targets[:4], 2, given)
    assert (few.vector_scale, few.score) == (1.0, None)
    monkeypatch.setattr(fitting, "MAX_CHOICE_WORK", 12 * 600)  # enough for the n-grams of all rows, not for the vectors
    found = search_hyperparameters(rows, targets, 2, replace(given, vector_scale=1.0))
    assert found.vector_scale == 1.0
    assert 300 < found.rows < 350  # (3 n-grams + 8 features) x 2 classes a row
    monkeypatch.undo()
    monkeypatch.setattr(fitting, "SCALES", (0.0,))
    none, bare = (search_hyperparameters(rows, targets, 2, own) for own in (given, replace(given, vectors=None)))
    assert fit_model(rows, targets, 2, none).to_bytes() == fit_model(rows, targets, 2, bare).to_bytes()


def test_one_standard_error_decides_between_scales() -> None:
    drawn = np.random.default_rng(0).normal(size=100)
    means = {1.0: 0.5, 0.5: 0.45, 0.25: 0.5, 2.0: 0.6, 0.0: 0.4}
    drawn -= drawn.mean()
    assert fitting._choose_scale(lambda scale: means[scale] + 5 * scale * drawn) == 1.0
    assert fitting._choose_scale(lambda scale: means[scale] + 0.1 * scale * drawn) == 0.0
    assert fitting._choose_scale(lambda scale: means[scale] + (scale == 0.5) * drawn) == 0.5


def test_explanations_name_words_by_their_vectors(folder: Path) -> None:
    rows, targets = made_rows(400, words=20)
    model = fit_model(rows, targets, 2, choice(folder, 4.0))
    assert "good33" in explain(model, ("film1 good33 film3", None), 1)[0]
    pairs: Rows = [(text, "film1") for text, _ in rows]
    assert explain(fit_model(pairs, targets, 2, choice(folder, 4.0)), ("bad30", "film1"), 0)[0] == "first: bad30"


def test_auto_takes_the_installed_package_for_texts_that_it_covers(wordllama: None) -> None:
    log = Kept()
    found = resolve_vectors(LinearConfig(vectors="auto"), [("How do I reset my password?", None)], log)
    assert found.vectors is not None and found.vectors.startswith("wordllama==")
    assert resolve_vectors(found, [], log) == found
    assert resolve_vectors(LinearConfig(vectors="wordllama"), [("今天天气", None)], log) == found
    assert resolve_vectors(LinearConfig(vectors="auto"), [("今天天气怎么样，股市大涨", None)], log).vectors is None
    assert read_static_vectors(found.vectors) is read_static_vectors("wordllama")
    for wrong in ("wordllama==0.0.1", f"wordllama@{'0' * 64}"):
        with pytest.raises(
            UsageError, match=rf"linear\.vectors wordllama.*; pip install {wrong[:9]}.*, or set it to null"
        ):
            read_static_vectors(wrong)
    lists: Rows = [("one\n\ttwo\r\n three\n", None)] * 5
    assert resolve_vectors(LinearConfig(vectors="auto"), lists, log) == found
    vectors = read_static_vectors("wordllama")
    assert vectors.tokenize([("</s><unk>", None)])[0].ids.min() > 2  # the name of a special token is text


def test_a_package_with_other_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "wordllama-9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: wordllama\nVersion: 9\n", encoding="utf-8")
    monkeypatch.setattr(static_vectors, "distribution", lambda name: metadata.PathDistribution(info))
    with pytest.raises(ModelError, match=r"wordllama==9: has no weights/"):
        read_static_vectors("wordllama")
    (tmp_path / "wordllama" / "weights").mkdir(parents=True)
    (tmp_path / "wordllama" / "tokenizers").mkdir()
    table, tokenizer = (tmp_path / "wordllama" / file for file in static_vectors.PACKAGE_FILES)
    tokenizer.write_text("{", encoding="utf-8")
    for tensors, reason in (
        ({"other": np.ones((2, 2))}, "embedding.weight"),
        ({"embedding.weight": np.ones(2)}, "no tok"),
    ):
        save_file(tensors, table)
        with pytest.raises(ModelError, match=rf"l2_supercat_256\.safetensors: is damaged.*{reason}"):
            read_static_vectors("wordllama")


def test_vectors_that_are_not_there_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Kept()
    assert resolve_vectors(LinearConfig(vectors="auto"), [("a", None)], log).vectors is None
    assert "pip install 'recurcli[vectors]'" in log.notes[0]
    static_vectors._read_package.cache_clear()
    with pytest.raises(UsageError, match="wordllama: is not installed; pip install wordllama"):
        read_static_vectors("wordllama")
    with pytest.raises(UsageError, match=r"linear\.vectors no/such: is not a folder"):
        read_static_vectors("no/such")
    fetched = model2vec(tmp_path / "hub", table())
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda name, **_: str(fetched))
    assert read_static_vectors("maker/small").about == {"source": "maker/small", "licence": "mit"}


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    short, wrong, large = table()[:-1], table(), table()
    wrong[3, 2], large[3, 2] = np.nan, 3e38
    reasons = ("short", short, "not those of Model2Vec"), ("nan", wrong, "not finite"), ("large", large, "1,000,000")
    for name, vectors, reason in reasons:
        with pytest.raises(ModelError, match=rf"{name}.*{reason}"):
            read_static_vectors(str(model2vec(tmp_path / name, vectors)))
    path = model2vec(tmp_path / "other", table()) / "tokenizer.json"
    path.write_text(path.read_text(encoding="utf-8").replace("WordLevel", "New"), encoding="utf-8")
    with pytest.raises(ModelError, match=r"other.*is damaged or no tokenizer"):
        read_static_vectors(str(path.parent))


def test_a_run_keeps_its_vectors(folder: Path, recur: Recur, rows_file: Path, tmp_path: Path) -> None:
    """It labels, evaluates and exports without the folder, and is repeated and resumed with it alone."""
    source, run = shutil.copytree(folder, tmp_path / "own"), tmp_path / "run"
    train = ("finetune", "--preset", "linear-custom", "--data", rows_file, "--set", f"linear.vectors={source}")
    recur.ok(*train, "--output", run)
    result = result_of(run)
    assert result["linear_baseline"]["vectors"]["source"] == str(source)
    assert "licence mit" in (run / "README.md").read_text(encoding="utf-8")
    assert f"vectors: {source}@" in (run / "preset.yaml").read_text(encoding="utf-8")
    before = (run / "linear.safetensors").read_bytes()
    assert "already finished" in recur.ok(*train, "--output", run, "--resume")[1]
    (run / "result.json").unlink()  # as after a kill
    recur.ok(*train, "--output", run, "--resume")
    assert (run / "linear.safetensors").read_bytes() == before
    source.rename(tmp_path / "gone")
    new = tmp_path / "new.txt"
    new.write_text("good33\nbad33\nfilm1 good25 film3\n", encoding="utf-8")
    answers = recur.ok("predict", run, new, "--output", "-")[0].splitlines()
    assert [line.split("\t")[1] for line in answers] == ["good", "bad", "good"]
    assert load(run).predict(["good33"])[0].label == "good"
    recur.ok("eval", run, "--report", tmp_path / "page.html", "--quiet")
    assert f"{source}" in (tmp_path / "page.html").read_text(encoding="utf-8")
    exported = tmp_path / "exported"
    recur.ok("export", run, "--format", "onnx", "--output", exported)
    command = [sys.executable, str(exported / "predict.py")]
    done = subprocess.run(command, input=new.read_text(encoding="utf-8"), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["\t".join(line.split("\t")[1:]) for line in answers]
    for again in (("finetune", "--preset", run / "preset.yaml"), train):
        recur.refused(2, "is not a folder", *again, "--output", tmp_path / "again")
    table = run / "vectors.safetensors"
    stored = load_file(table)
    save_file({**stored, "scales": stored["scales"] * 2}, table)
    recur.refused(4, "vectors.safetensors", "predict", run, new, "--output", "-")


def encoder_options(source: object, *settings: str) -> list[object]:
    """Options of a small encoder without the linear model, whose tokens and vectors are those of `source`."""
    own = (f"embedding.vectors={source}", "tokenizer.kind=vectors", "ensemble=null", "finetuning.word_dropout=0")
    return ["--preset", "starsaber-custom", *tiny("encoder.hidden_size=8", *own, "finetuning.epochs=4", *settings)]


def test_a_tokenizer_of_vectors_has_their_ids_and_the_special_tokens(folder: Path, tmp_path: Path) -> None:
    vectors = read_static_vectors(str(folder))
    made = Tokenizer.of_vectors(vectors.tokenizer)
    assert made.tokens == [*WORDS, "[PAD]", "[SEP]", "[MASK]"]
    (tmp_path / "tokenizer.json").write_text(made.to_json(), encoding="utf-8")
    read = Tokenizer.load(OpenedFile(tmp_path / "tokenizer.json"))
    pair = [("good1 [SEP] film2", "bad3")]
    for own in (made, read):
        assert own.encode(pair, 8).ids.tolist() == [2, 0, WORDS.index("film2"), own.separator_id, WORDS.index("bad3")]
    whole, known = vectors.of_tokens(made.tokens, 8)
    assert known.tolist() == [True] * len(WORDS) + [False] * 3
    np.testing.assert_allclose(whole[known], table(), atol=float(np.abs(table()).max()) / 250)
    few = vectors.of_tokens(made.tokens[::-1], 3).matrix[::-1][: len(WORDS)]
    np.testing.assert_array_equal(few, principal_components(whole[known], 3))


def test_an_encoder_reads_words_of_no_training_row(folder: Path, recur: Recur, rows_file: Path, tmp_path: Path) -> None:
    """Its run labels and exports without the folder, and is repeated with it alone."""
    source, run = shutil.copytree(folder, tmp_path / "own"), tmp_path / "run"
    train = ("finetune", "--data", rows_file, *encoder_options(source))
    _, err = recur.ok(*train, "--output", run, "--verbose")
    assert f"own: vectors for {len(WORDS)} of {len(WORDS) + 3} tokens" in err
    assert f"vectors: {source}@" in (run / "preset.yaml").read_text(encoding="utf-8")
    assert result_of(run)["embedding_vectors"] == {"source": str(source), "licence": "mit"}
    assert "vectors of the embedding | " in (run / "README.md").read_text(encoding="utf-8")
    assert "nothing to do" in recur.ok(*train, "--output", run, "--resume")[1]
    recur.ok("check", rows_file, "--preset", run / "preset.yaml")
    other = model2vec(tmp_path / "other", -table())
    same = ("finetune", "--data", rows_file, *encoder_options(other), "--output", run, "--resume")
    recur.refused(2, "embedding.vectors", *same)
    source.rename(tmp_path / "gone")
    assert "nothing to do" in recur.ok(*train, "--output", run, "--resume")[1]
    new = tmp_path / "new.txt"
    new.write_text("".join(f"film1 {word}\n" for word in (*NEGATIVE[20:], *POSITIVE[20:])), encoding="utf-8")
    answers = recur.ok("predict", run, new, "--output", "-")[0].splitlines()
    labels = [line.split("\t")[1] for line in answers]
    assert sum(found == wanted for found, wanted in zip(labels, ["bad"] * 20 + ["good"] * 20, strict=True)) > 34
    exported = tmp_path / "exported"
    recur.ok("export", run, "--format", "onnx", "--output", exported)
    command = [sys.executable, str(exported / "predict.py")]
    done = subprocess.run(command, input=new.read_text(encoding="utf-8"), capture_output=True, text=True, check=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == labels
    for again in (("finetune", "--preset", run / "preset.yaml"), train):
        recur.refused(2, "is not a folder", *again, "--output", tmp_path / "again")


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on_with_the_same_vectors_alone(
    folder: Path, recur: Recur, rows_file: Path, tmp_path: Path
) -> None:
    source, runs = tmp_path / "own", [tmp_path / "whole", tmp_path / "half"]
    shutil.copytree(folder, source)
    train = [
        "finetune",
        "--data",
        rows_file,
        *encoder_options(source, "embedding.freeze=true", "encoder.hidden_size=4"),
    ]
    for run in runs:
        recur.ok(*train, "--keep-checkpoints", "--output", run)
    (runs[1] / "result.json").unlink()
    checkpoints = sorted((runs[1] / "checkpoints").glob("step-*"))
    shutil.rmtree(checkpoints[-1])
    shutil.move(source, tmp_path / "kept")
    model2vec(source, -table())
    recur.refused(2, "embedding.vectors", *train, "--output", runs[1], "--resume")
    shutil.rmtree(source)
    shutil.move(tmp_path / "kept", source)
    recur.ok(*train, "--keep-checkpoints", "--output", runs[1], "--resume")
    assert fingerprint(runs[0]) == fingerprint(runs[1])
    frozen = read_model(runs[0]).of_encoder().tensors["embedding.weight"][: len(WORDS)].numpy()
    few = principal_components(read_static_vectors(str(source)).of_tokens(WORDS, 8).matrix, 4)
    np.testing.assert_allclose(frozen / np.linalg.norm(frozen), few / np.linalg.norm(few), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (["tokenizer.kind=vectors"], "tokenizer.kind: vectors needs static vectors"),
        (["tokenizer.kind=vectors", "embedding.vectors=words.txt"], "words.txt is a text file, which has no tokenizer"),
        (["tokenizer.kind=vectors", "embedding.vectors=no/such"], "embedding.vectors no/such: is not a folder"),
        (
            ["embedding.vectors=wordllama"],
            "wordllama is neither a file nor a folder; a name needs --set tokenizer.kind=vectors",
        ),
        (["tokenizer.kind=vectors", "embedding.vectors=wordllama"], "embedding.vectors wordllama: is not installed"),
        (["tokenizer.kind=vectors", "embedding.vectors={folder}", "encoder.hidden_size=16"], "has vectors of size 8"),
    ],
)
def test_what_is_no_source_of_tokens_and_vectors_is_refused(
    settings: list[str],
    reason: str,
    folder: Path,
    recur: Recur,
    rows_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("good1 0.5 0.5\n", encoding="utf-8")
    static_vectors._read_package.cache_clear()
    options = tiny(*(setting.format(folder=folder) for setting in settings))
    train = ("finetune", "--preset", "starsaber-custom", "--data", rows_file, *options)
    recur.refused(2, reason, *train, "--output", tmp_path / "run")


def test_the_package_gives_tokens_and_vectors(wordllama: None, recur: Recur, rows_file: Path, tmp_path: Path) -> None:
    run, own = tmp_path / "run", encoder_options("wordllama", "finetuning.max_steps=1")
    _, err = recur.ok("finetune", "--data", rows_file, *own, "--output", run, "--verbose")
    assert "vectors for 32,000 of 32,004 tokens" in err
    assert "vectors: wordllama==" in (run / "preset.yaml").read_text(encoding="utf-8")
    assert read_model(run).of_encoder().tokenizer.encode([("a Cat's [MASK] 龘", None)], 99).ids.max() < 32000


def test_a_folder_is_found_from_everywhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    for name, found in ((folder.name, str(folder)), ("wordllama", "wordllama"), ("maker/name", "maker/name")):
        assert compose("linear-custom", settings=[f"linear.vectors={name}"]).preset.linear.vectors == found


@pytest.mark.slow
def test_a_study_may_search_the_vectors(folder: Path, recur: Recur, rows_file: Path, tmp_path: Path) -> None:
    ranges = ("--range", f"linear.vectors=null|{folder}", "--range", "linear.words=[1,1]|[1,2]")
    settings = ("--set", "linear.characters=null", "--set", "linear.c=1")
    study = ("tune", "--preset", "linear-custom", "--data", rows_file, *settings, *ranges, "--trials", 4)
    trials = recur.json(*study, "--output", tmp_path / "study")["trials"]
    assert {None, str(folder)} <= {trial["settings"]["linear.vectors"] for trial in trials}


def test_a_study_of_an_encoder_alone_fits_the_vectors_once(
    folder: Path, recur: Recur, rows_file: Path, tmp_path: Path
) -> None:
    settings = tiny("ensemble=null", f"linear.vectors={folder}", "finetuning.max_steps=1")
    study = ("tune", "--preset", "starsaber-custom", "--data", rows_file, *settings, "--range", "pooling=mean|max")
    found = recur.json(*study, "--trials", 2, "--output", tmp_path / "study")
    assert (found["complete"], found["linear_dev_metric"] is not None) == (2, True)


HEAVY = ("torch", "datasets", "transformers", "sklearn", "scipy.sparse")
"""Packages whose import takes longer than the prediction of a row."""
PROBE = f"import sys; print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
COMMAND = f"import sys\nfrom recurcli.cli import main\ntry:\n    main()\nexcept SystemExit:\n    {PROBE}"


def test_a_linear_model_runs_without_torch(
    recur: Recur, folder: Path, rows_file: Path, trained: Path, tmp_path: Path
) -> None:
    run, texts = tmp_path / "run", saved(tmp_path / "texts.txt", "film1 good1 film2\n")
    fixed = ("linear.c=1", "linear.words=[1, 1]", "linear.characters=null", "linear.vector_scale=1")
    settings = [part for value in (f"linear.vectors={folder}", *fixed) for part in ("--set", value)]
    recur.ok("finetune", rows_file, "--preset", "linear-custom", *settings, "--output", run, "--quiet")
    load = f"import recurcli; print(recurcli.load({str(run)!r}).predict(['film1 good1'])[0].label); {PROBE}"
    expected = {
        ("-c", COMMAND, "predict", run, texts, "--device", "cpu"): "good",
        ("-c", COMMAND, "predict", trained, texts, "--fast"): "film1 good1 film2\t",
        ("-c", COMMAND, "eval", run, rows_file): "linear model",
        ("-c", load): "good",
    }
    for arguments, word in expected.items():
        done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, check=True)
        allowed = (
            "['scipy.sparse']" if "eval" in arguments else "[]"
        )  # older releases of SciPy import it for statistics
        assert word in done.stdout and done.stderr.splitlines()[-1] in ("[]", allowed), done


def test_a_device_that_is_not_there_is_refused_for_a_linear_model_too(recur: Recur, trained: Path) -> None:
    for device, fault in (("cuda:99", "is not available"), ("tpu", "is unknown")):
        recur.refused(2, fault, "predict", trained, "--fast", "--device", device)
