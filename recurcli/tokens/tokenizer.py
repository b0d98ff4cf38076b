"""Tokenizers: trained on texts or read from a file of tokens, and texts as ids: `a` alone, or `a [SEP] b` for a pair (separator
between the texts: Xu et al., StarSaber).

The same texts give the same bytes. The WordPiece trainer of `tokenizers` iterates over hash maps whose order changes from run
to run. Here Python counts and sorts the words, and `tokenizers` merges pairs, which is deterministic.
"""

import functools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar
from zlib import crc32

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, processors, trainers

from recurcli.config import TokenizerConfig, Truncation
from recurcli.data.rows import rows_of_file
from recurcli.data.splits import Split, separates_words
from recurcli.errors import DataError, ModelError, escaped, pluralize
from recurcli.files import OpenedFile, naming_damage, read_limited
from recurcli.log import Log
from recurcli.tokens.allowed import check_steps
from recurcli.tokens.word_tokens import encodable

PAD, UNKNOWN, SEPARATOR, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[SEP]", "[MASK]")

MAX_PIECE = 16
"""Most characters of a merged piece, as in SentencePiece."""
MAX_WORD = 1000
"""Longer words are cut into parts of this many characters: merging takes time quadratic in a word's length."""
Words = Counter[str]


def _set_splitting(backend: tokenizers.Tokenizer, config: TokenizerConfig) -> None:
    """Set how `backend` normalises a text and splits it into words."""
    if config.kind == "whitespace":
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return
    if config.kind == "wordpiece":
        backend.normalizer = normalizers.BertNormalizer(lowercase=config.lowercase)
        backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return
    lowercase = [normalizers.Lowercase()] if config.lowercase else []
    spaces = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), *lowercase, *spaces])
    if config.kind == "char":
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    else:
        backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])


def _words(backend: tokenizers.Tokenizer, texts: Iterable[str], kind: str) -> Words:
    """Count the pre-tokenizer's words in `texts`, without the names of special tokens.

    A space ends each word of WordPiece, so what stands between two spaces is split once, however often it occurs.
    """
    words: Words = Counter()
    parts: Iterable[tuple[str, int]] = ((encodable(text), 1) for text in texts)
    if kind == "wordpiece":
        parts = Counter(part for text, _ in parts for part in text.split(" ")).items()
    for text, count in parts:
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        if kind == "char":  # each character is a word; the pre-tokenizer splits alike, thirty times slower
            words.update(text)
        else:
            for word, _ in backend.pre_tokenizer.pre_tokenize_str(text):
                words[word] += count
    for token in SPECIAL_TOKENS:
        del words[token]
    return words


def _most_common(counts: Words, config: TokenizerConfig) -> list[str]:
    """Return the `vocab_size` most frequent tokens that reach `min_frequency`, ties in code point order."""
    frequent = [token for token, count in counts.items() if count >= config.min_frequency]
    return sorted(frequent, key=lambda token: (-counts[token], token))[: config.vocab_size - len(SPECIAL_TOKENS)]


def _whole_words(words: Words, config: TokenizerConfig) -> models.Model:
    tokens = [*SPECIAL_TOKENS, *_most_common(words, config)]
    return models.WordLevel(vocab={token: index for index, token in enumerate(tokens)}, unk_token=UNKNOWN)


def _merged_pairs(words: Words, config: TokenizerConfig) -> models.Model:
    """Train byte pair encoding over characters (Sennrich et al. 2016); rare characters become [UNK]."""
    characters: Words = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    alphabet = _most_common(characters, config)
    known = set(alphabet)

    def lines() -> Iterator[str]:
        for word, count in sorted(words.items()):
            parts = (word[start : start + MAX_WORD] for start in range(0, len(word), MAX_WORD))
            text = "".join(character if character in known else " " for part in parts for character in f"{part} ")
            for start in range(0, count, 1000):
                yield " ".join([text] * min(1000, count - start))

    backend = tokenizers.Tokenizer(models.BPE(unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        max_token_length=MAX_PIECE,
        show_progress=False,
    )
    backend.train_from_iterator(lines(), trainer)
    return backend.model


def _word_pieces(words: Words, config: TokenizerConfig) -> models.Model:
    """Train WordPiece (a piece inside a word begins with ##) with merges by frequency, as in byte pair encoding.

    While merges are counted, a character has one code point at the start of a word and another inside a word.
    """
    alphabet = "".join(sorted(set().union(*words)))
    last = 0x10000 + 2 * len(alphabet)
    first, others = "".join(map(chr, range(0x10000, last, 2))), "".join(map(chr, range(0x10001, last, 2)))
    opening, inside = str.maketrans(alphabet, first), str.maketrans(alphabet, others)
    symbols = Counter({word[0].translate(opening) + word[1:].translate(inside): n for word, n in words.items()})
    vocabulary = dict(zip(SPECIAL_TOKENS, range(len(SPECIAL_TOKENS)), strict=True))
    written, inner = str.maketrans(first + others, 2 * alphabet), set(others)
    for token, index in tokenizers.Tokenizer(_merged_pairs(symbols, config)).get_vocab().items():
        if token not in vocabulary:
            vocabulary["##" * (token[0] in inner) + token.translate(written)] = index
    return models.WordPiece(vocab=vocabulary, unk_token=UNKNOWN)


_TRAINERS: dict[str, Callable[[Words, TokenizerConfig], models.Model]] = {
    "char": _whole_words,
    "whitespace": _whole_words,
    "wordpiece": _word_pieces,
    "bpe": _merged_pairs,
}


def byte_vocabulary() -> dict[str, int]:
    """Return ids of bytes: b + 1 for byte b, written as ByteLevel's character; [PAD] 0, [SEP] 257, [MASK] 258."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    written = {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}
    return {PAD: 0, **{written[byte]: byte + 1 for byte in range(256)}, SEPARATOR: 257, MASK: 258}


def read_vocabulary(path: Path, special: Sequence[str] = SPECIAL_TOKENS) -> dict[str, int]:
    """Read token to id from a file with one token a line, or from the tokenizer.json of others.

    The id is the line's number from 0; the tokens of a tokenizer.json are in the order of their ids. Missing `special` tokens
    follow the last one; if all of them are missing, they come first as ids from 0 on. Raises DataError for a blank line, a
    repeated token or bad UTF-8, and ModelError for a damaged tokenizer.json.
    """
    tokens: dict[str, None] = {}
    if path.suffix == ".json" and path.is_file():
        ids = token_ids(path)
        tokens = dict.fromkeys(sorted(ids, key=ids.__getitem__))
    else:
        for line, row in enumerate(rows_of_file(path), 1):
            try:
                token = row.content.decode()
            except UnicodeDecodeError as error:
                raise DataError(f"{path}:{line}: is not UTF-8 at byte {error.start}") from None
            if not token or token in tokens:
                wrong = f"repeats the token '{escaped(token)}'" if token else "is blank; expected a token"
                raise DataError(f"{path}:{line}: {wrong}")
            tokens[token] = None
    if not tokens:
        raise DataError(f"{path}: is empty; expected a token a line")
    missing = [token for token in special if token not in tokens]
    ordered = [*missing, *tokens] if len(missing) == len(special) else [*tokens, *missing]
    return {token: index for index, token in enumerate(ordered)}


def token_ids(path: Path) -> dict[str, int]:
    """Return the ids of the tokens in a tokenizer.json. Raises ModelError if it is damaged."""
    with naming_damage(path):
        document = json.loads(read_limited(path, MAX_FILE))
        vocabulary: Any = document["model"]["vocab"]
        if isinstance(vocabulary, list):  # Unigram: pairs of a token and its score
            vocabulary = {token: token_id for token_id, (token, _) in enumerate(vocabulary)}
        ids = {**vocabulary, **{added["content"]: added["id"] for added in document.get("added_tokens") or ()}}
        if not all(type(token_id) is int and 0 <= token_id < 2**31 for token_id in ids.values()):
            raise ValueError("an id is not a whole number from 0")
    return ids


CHARACTERS_PER_TOKEN = 64
"""A text is cut to `max_length` times this many characters before it is tokenised, which bounds the time."""
ROWS_AT_ONCE = 8192
"""Rows that are tokenised together, which bounds the memory of their tokens."""
MAX_FILE = 64 << 20
MAX_COUNTED = 1 << 20
"""Characters of a text that `Tokenizer.lengths` counts."""

_NO_WORD = re.compile(r"\[(PAD|UNK|SEP|MASK|CLS|unused\d+)\]")

COVERED = 0.99
"""Fraction of the training rows that `data.max_length: auto` does not cut."""
MAX_AUTO = 512
"""Largest `max_length` that auto chooses; time and memory of attention grow with it."""
FOLDED = 4_000
"""Most rows that are measured with a tokenizer of other rows for auto: they take less than a CPU second."""
MANY_UNKNOWN = 0.2
"""Fraction of unknown tokens in a split above which a warning says so."""

Text = TypeVar("Text", str, list[int])
Rows = Sequence[tuple[str, str | None]]


class Template(NamedTuple):
    """The special ids before the first text of a row, between its two texts, and after the last one."""

    before: tuple[int, ...]
    between: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True)
class Tokens:
    """Rows of token ids end to end: row i is `ids[offsets[i]:offsets[i + 1]]`, and may be empty."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    truncated: int = 0
    """Number of rows that were cut."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @functools.cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens a row, (rows,)."""
        return np.diff(self.offsets)

    def take(self, rows: NDArray[np.int64]) -> "Tokens":
        """Return the given rows, in the order of `rows`."""
        lengths = self.lengths[rows]
        offsets = offsets_of(lengths)
        indexes = np.arange(int(lengths.sum())) + np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return Tokens(self.ids[indexes], offsets)


def offsets_of(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the offsets of rows with these `lengths`, (rows + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def joined(blocks: Iterable[Tokens]) -> Tokens:
    """Concatenate the rows of all `blocks`."""
    ids, lengths, truncated = [np.zeros(0, np.int32)], [np.zeros(0, np.int64)], 0
    for block in blocks:
        ids.append(block.ids)
        lengths.append(block.lengths)
        truncated += block.truncated
    return Tokens(np.concatenate(ids), offsets_of(np.concatenate(lengths)), truncated)


class Tokenizer:
    """Encodes texts with a vocabulary; `backend` is the `tokenizers.Tokenizer` that splits them.

    A text that normalisation leaves empty gives an empty row. A special token's name in a text becomes characters, pieces
    or [UNK], never the special token.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._use(backend)
        vocab = backend.get_vocab()
        self.tokens: list[str] = sorted(vocab, key=vocab.__getitem__)
        """The tokens in the order of their ids."""
        if sorted(vocab.values()) != list(range(len(vocab))) or not {PAD, SEPARATOR, MASK} <= vocab.keys():
            needed = f"{PAD}, {SEPARATOR} and {MASK}, and ids from 0 without a gap"
            raise ModelError(f"is not a tokenizer of recur, which has {needed}")
        self.pad_id, self.separator_id, self.mask_id = vocab[PAD], vocab[SEPARATOR], vocab[MASK]
        self.unknown_id: int | None = vocab.get(UNKNOWN)
        self.special_ids: tuple[int, ...] = self.pad_id, self.separator_id, self.mask_id
        """The ids that no text has."""
        self.template = Template((), (self.separator_id,), ())

    def _use(self, backend: tokenizers.Tokenizer) -> None:
        """Keep `backend`, which reads the name of a special token as text."""
        backend.encode_special_tokens = True
        self.backend = backend

    @classmethod
    def train(cls, texts: Iterable[str], config: TokenizerConfig) -> "Tokenizer":
        """Train a tokenizer on `texts`, or take its vocabulary from the file `config.vocabulary`.

        The same texts give the same bytes. Raises DataError if no token occurs often enough or the file cannot be read.
        """
        backend = tokenizers.Tokenizer(models.BPE())
        if config.kind == "byte":
            backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            backend.model = models.BPE(vocab=byte_vocabulary(), merges=[])
        else:
            _set_splitting(backend, config)
            if config.vocabulary is None:
                backend.model = _TRAINERS[config.kind](_words(backend, texts, config.kind), config)
            else:
                model = models.WordPiece if config.kind == "wordpiece" else models.WordLevel
                backend.model = model(vocab=read_vocabulary(Path(config.vocabulary)), unk_token=UNKNOWN)
        if backend.get_vocab_size() <= len(SPECIAL_TOKENS):
            if config.vocabulary:
                raise DataError(f"{config.vocabulary}: has no token beside the special ones")
            raise DataError(
                f"the training texts hold no token that occurs {config.min_frequency} times (tokenizer.min_frequency), "
                "so there is no vocabulary; are they empty, or is the text another column?"
            )
        return cls._with_special(backend, [token for token in SPECIAL_TOKENS if backend.token_to_id(token) is not None])

    @classmethod
    def of_vectors(cls, content: bytes) -> "Tokenizer":
        """Return the tokenizer of static vectors, whose tokenizer.json has this `content`, with the special tokens it lacks."""
        return cls._with_special(read_backend(content), SPECIAL_TOKENS)

    @classmethod
    def _with_special(cls, backend: tokenizers.Tokenizer, special: Sequence[str]) -> "Tokenizer":
        backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
        backend.post_processor = processors.TemplateProcessing(  # for other readers of its file
            single="$A", pair=f"$A {SEPARATOR} $B:1", special_tokens=[(SEPARATOR, backend.token_to_id(SEPARATOR))]
        )
        return cls(backend)

    @classmethod
    def load(cls, file: OpenedFile) -> Self:
        """Load the tokenizer that `to_json` wrote to `file`. Raises ModelError for another file."""
        content = file.read(MAX_FILE)
        try:
            return cls(read_backend(content))
        except (ModelError, ValueError) as error:
            raise ModelError(f"{file.path}: {error}") from None

    def to_json(self) -> str:
        """Return the content of a tokenizer.json, which `load` and the tokenizers library read."""
        return self.backend.to_str(pretty=True) + "\n"

    @property
    def vocab_size(self) -> int:
        """Number of tokens, special tokens included."""
        return len(self.tokens)

    @functools.cached_property
    def word_ids(self) -> NDArray[np.int64]:
        """Ids of all tokens but the special ones, which include BERT's [CLS], [unused1], …"""
        special = {*self.special_ids, self.unknown_id}
        words = (
            i for i, token in enumerate(self.tokens) if token and i not in special and not _NO_WORD.fullmatch(token)
        )
        return np.array([*words], dtype=np.int64)

    def encode(self, texts: Rows, max_length: int, truncate: Truncation = "head") -> Tokens:
        """Encode (text, None) and (text, second text) rows as at most `max_length` ids each.

        The longer text of a pair is cut first, and what is kept of each is what `truncate` says; the separator stays.
        """
        starts = range(0, len(texts), ROWS_AT_ONCE)
        blocks = (texts[start : start + ROWS_AT_ONCE] for start in starts)
        return joined([self._encode_block(block, max_length, truncate) for block in blocks])

    def lengths(self, texts: Rows) -> NDArray[np.int64]:
        """Count the tokens of each uncut row, those of the template included, (rows,).

        The first MAX_COUNTED characters of a text count.
        """
        counts = map(len, self._encodings(texts, MAX_COUNTED, "head"))
        around, between = len(self.template.before) + len(self.template.after), len(self.template.between)
        lengths = [around + next(counts) + (0 if pair is None else between + next(counts)) for _, pair in texts]
        return np.array(lengths, dtype=np.int64)

    def _encodings(self, texts: Rows, limit: int, truncate: Truncation) -> Iterator[tokenizers.Encoding]:
        """Encode each text, and each second text after its first, cut to `limit` characters."""
        pieces = [encodable(_cut(text, limit, truncate)) for text in single_texts(texts)]
        for start in range(0, len(pieces), ROWS_AT_ONCE):
            yield from self.backend.encode_batch_fast(pieces[start : start + ROWS_AT_ONCE], add_special_tokens=False)

    def _encode_block(self, texts: Rows, max_length: int, truncate: Truncation) -> Tokens:
        limit = max_length * CHARACTERS_PER_TOKEN
        encodings = self._encodings(texts, limit, truncate)
        # A special id is ~id, which is below 0, until those that come from texts are replaced.
        before, between, after = ([~token_id for token_id in part] for part in self.template)
        most = max_length - len(before) - len(after)
        ids: list[int] = []
        offsets, truncated = [0], 0
        for text, pair in texts:
            first = next(encodings).ids
            cut = len(text) > limit
            ids += before
            if pair is None:
                ids += _cut(first, most, truncate)
                cut |= len(first) > most
            else:
                second = next(encodings).ids
                room = _room(len(first), len(second), most - len(between))
                ids += [*_cut(first, room[0], truncate), *between, *_cut(second, room[1], truncate)]
                cut |= len(pair) > limit or room != (len(first), len(second))
            ids += after
            offsets.append(len(ids))
            truncated += cut
        row_ids = np.array(ids, dtype=np.int32)
        if self.unknown_id is not None:  # a special id here comes from a text
            row_ids[np.isin(row_ids, self.special_ids)] = self.unknown_id
        return Tokens(np.where(row_ids < 0, ~row_ids, row_ids), np.array(offsets, dtype=np.int64), truncated)


def single_texts(rows: Iterable[tuple[str, str | None]]) -> Iterator[str]:
    """Yield the text of each row, and after it the second text of a pair."""
    return (text for row in rows for text in row if text is not None)


def _cut(text: Text, room: int, truncate: Truncation) -> Text:
    """Return at most `room` characters or ids of `text`: those that `truncate` keeps."""
    if len(text) <= room:
        return text
    last = {"head": 0, "tail": room, "both": room // 2}[truncate]
    return text[: room - last] + text[len(text) - last :]


def _room(first: int, second: int, room: int) -> tuple[int, int]:
    """Return the number of tokens kept of each text where both may have `room`; the longer text is cut first."""
    if first + second <= room:
        return first, second
    shorter = min(first, second, room // 2)
    return (shorter, room - shorter) if first <= second else (room - shorter, shorter)


def read_backend(content: bytes) -> tokenizers.Tokenizer:
    """Return the tokenizer that is the content of a tokenizer.json, without padding and truncation.

    Raises ValueError for another content, and for one that does more with a text than `check_steps` allows.
    """
    try:
        check_steps(content)
        backend = tokenizers.Tokenizer.from_str(content.decode())
        backend.no_padding()
        backend.no_truncation()
        backend.encode("\U0002a6a5")  # an unknown character reveals a broken model
    except BaseException as error:  # the library raises Exception itself, and panics as a BaseException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ValueError(f"is damaged or no tokenizer that recur reads: {escaped(error, 300)}") from None
    return backend


def resolved_tokenizer(config: TokenizerConfig, texts: Iterable[str]) -> TokenizerConfig:
    """Return `config` with a kind for `auto`: char where words are not separated by spaces, else wordpiece [ours]."""
    if config.kind != "auto":
        return config
    return replace(config, kind="wordpiece" if separates_words(texts) else "char")


def choose_max_length(lengths: NDArray[np.int64]) -> int:
    """Return the smallest multiple of 8 tokens that 99 % of the rows do not exceed. It is MAX_AUTO at most [ours]."""
    covered = int(np.ceil(np.quantile(lengths, COVERED))) if len(lengths) else 1
    return min(MAX_AUTO, -(-max(covered, 3) // 8) * 8)


def choose_unseen_max_length(lengths: NDArray[np.int64], rows: Rows, config: TokenizerConfig | None) -> int:
    """Return `choose_max_length` of texts like those of `rows`, which have these `lengths` with a tokenizer trained on them.

    A text that trained no vocabulary of subwords splits into more pieces, so a tokenizer that is trained on half of the rows
    measures the other half, and the other way round [ours]. Rows with equal first texts are in one half. At most FOLDED rows
    are measured. The `lengths` count if `config` is None, the vocabulary does not change them, or half of the rows give none.
    """
    chosen = choose_max_length(lengths)
    if config is None or config.kind not in ("wordpiece", "bpe") or config.vocabulary is not None or chosen == MAX_AUTO:
        return chosen
    halves: tuple[list[tuple[str, str | None]], ...] = [], []
    for row in rows[:: max(1, -(-len(rows) // FOLDED))]:
        halves[crc32(encodable(row[0]).encode()) % 2].append(row)
    try:
        trained = [Tokenizer.train(single_texts(half), config) for half in halves]
    except DataError:  # half of a few rows holds no token often enough
        return chosen
    return choose_max_length(np.concatenate([trained[0].lengths(halves[1]), trained[1].lengths(halves[0])]))


def encode_splits(
    splits: Mapping[str, Split],
    tokenizer: Tokenizer,
    max_length: int,
    truncate: Truncation,
    log: Log,
) -> tuple[dict[str, Tokens], dict[str, dict[str, Any]]]:
    """Return the tokens of each split and the facts about it for result.json.

    Logs notes on the rows that were skipped, dropped or truncated, and on many unknown tokens.
    """
    log.stage("tokenizing the rows")
    tokens, data = {}, {}
    for name, split in splits.items():
        tokens[name] = tokenizer.encode(split.texts, max_length, truncate)
        data[name] = facts_of_split(name, split, log) | {"truncated": tokens[name].truncated}
        note_on_cuts(tokens[name].truncated, len(split.examples), f"data.max_length {max_length}", truncate, log, name)
        unknown = float((tokens[name].ids == tokenizer.unknown_id).mean()) if len(tokens[name].ids) else 0.0
        if unknown > MANY_UNKNOWN:
            log.warn(f"{name}: {unknown:.0%} of the tokens are not in the vocabulary, so they are all [UNK]")
    return tokens, data


def facts_of_split(name: str, split: Split, log: Log) -> dict[str, Any]:
    """Return the facts about the split `name` for result.json, where no row is truncated.

    Logs notes on the rows that were skipped or dropped.
    """
    log.add(*split.notes)
    note_on_bad_rows(name, len(split.bad), "".join(split.bad[:1]), log)
    if split.dropped:
        kept = f"{len(split.examples):,} kept"
        log.note(f"{name}: {pluralize(split.dropped, 'row')} without a majority label ('-') dropped, {kept}")
    counts = {"dropped": split.dropped, "unlabelled": split.unlabelled, "bad": len(split.bad), "truncated": 0}
    return {**facts_of(split.path, len(split.examples), split.sha256), **counts}


def facts_of(path: Path | None, rows: int, sha256: str) -> dict[str, Any]:
    """Return path, number of rows and sha256 of the data of a split, for result.json."""
    return {"path": None if path is None else str(path), "rows": rows, "sha256": sha256}


def note_on_bad_rows(name: str, number: int, first: str, log: Log) -> None:
    """Warn about the `number` of skipped rows, if there are any. `first` describes the first one."""
    if number:
        log.warn(f"{name}: {pluralize(number, 'bad row')} skipped, the first: {first}")


def note_on_cuts(cut: int, rows: int, length: str, truncate: Truncation, log: Log, name: str = "") -> None:
    """Log how many of the `rows` were `cut` to a `length` in words, if there are any, as a detail of the split `name`."""
    if cut:
        share = f"{pluralize(cut, 'row')} ({cut / rows:.1%})"
        tell = log.detail if name else log.note
        tell(f"{name and f'{name}: '}{share} cut to {length} (data.truncate {truncate})")
