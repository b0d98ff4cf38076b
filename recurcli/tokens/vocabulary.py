"""Trains a tokenizer's vocabulary on texts, or reads it from a file of tokens; the same texts give the same bytes.

The WordPiece trainer of `tokenizers` iterates over hash maps whose order changes from run to run. Here Python counts and
sorts the words, and `tokenizers` merges pairs, which is deterministic.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from recurcli.data.formats.rows import rows_of_file
from recurcli.errors import DataError, escaped
from recurcli.tokens.config import TokenizerConfig, TokenizerKind

PAD, UNKNOWN, SEPARATOR, MASK = SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[SEP]", "[MASK]")

MAX_PIECE = 16
"""Most characters of a merged piece, as in SentencePiece."""
MAX_WORD = 1000
"""Longer words are cut into parts of this many characters: merging takes time quadratic in a word's length."""
Words = Counter[str]


def trained(texts: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Return a tokenizer with the vocabulary of `texts` or of the file `config.vocabulary`; raises DataError if it is empty."""
    backend = Tokenizer(models.BPE())
    if config.kind == "byte":
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        backend.model = models.BPE(vocab=byte_vocabulary(), merges=[])
        return _with_special_tokens(backend)
    if config.kind != "whitespace":
        backend.normalizer = _normalizer(config)
    backend.pre_tokenizer = _pre_tokenizer(config.kind)
    if config.vocabulary is not None:
        model = models.WordPiece if config.kind == "wordpiece" else models.WordLevel
        backend.model = model(vocab=read_vocabulary(Path(config.vocabulary)), unk_token=UNKNOWN)
    else:
        backend.model = _TRAINERS[config.kind](_words(backend, texts, config.kind), config)
    if backend.get_vocab_size() <= len(SPECIAL_TOKENS):
        if config.vocabulary:
            raise DataError(f"{config.vocabulary}: has no token beside the special ones")
        raise DataError(
            f"the training texts hold no token that occurs {config.min_frequency} times (tokenizer.min_frequency), so there "
            "is no vocabulary; are they empty, or is the text another column?"
        )
    return _with_special_tokens(backend)


def foreign_part(document: Any) -> str | None:
    """Return the part of a tokenizer.json that `trained` never writes, such as another normalizer; None if there is none.

    Vocabulary, merges and ids may be any. A normalizer or a regular expression of somebody else can make the library
    abort the process, so `document`, the parsed JSON, is looked at before the library reads it. Raises KeyError,
    TypeError or AttributeError for another structure.
    """
    found = _frame(document)
    frames = []
    for kind in get_args(TokenizerKind)[1:]:  # without auto
        for lowercase in (True, False):
            config = TokenizerConfig(kind=kind, lowercase=lowercase, min_frequency=1)
            frames.append(_frame(json.loads(trained(["ab"], config).to_str())))
            if found == frames[-1]:
                return None
    known = {part for frame in frames for part in frame}
    strange = (part for part in found if all(found[part] != frame.get(part) for frame in frames))
    return escaped(next(strange, None) or next(iter(known - found.keys()), "normalizer"))


def _frame(document: dict[str, Any]) -> dict[str, Any]:
    """Return a tokenizer.json without its vocabulary, its merges and its ids."""
    model = {key: value for key, value in document["model"].items() if key not in ("vocab", "merges")}
    special = {token["content"]: {**token, "id": None} for token in document["added_tokens"]}
    processor = document["post_processor"]
    names = {name: {**token, "ids": None} for name, token in processor["special_tokens"].items()}
    return {
        **document,
        "model": model,
        "added_tokens": special,
        "post_processor": {**processor, "special_tokens": names},
    }


def _normalizer(config: TokenizerConfig) -> normalizers.Normalizer:
    if config.kind == "wordpiece":
        return normalizers.BertNormalizer(lowercase=config.lowercase)
    steps: list[normalizers.Normalizer] = [normalizers.NFKC()]
    if config.lowercase:
        steps.append(normalizers.Lowercase())
    steps += [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    return normalizers.Sequence(steps)


def _pre_tokenizer(kind: str) -> pre_tokenizers.PreTokenizer:
    if kind == "char":
        return pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    if kind == "wordpiece":
        return pre_tokenizers.BertPreTokenizer()
    if kind == "whitespace":
        return pre_tokenizers.WhitespaceSplit()
    return pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])


def _with_special_tokens(backend: Tokenizer) -> Tokenizer:
    """Register the special tokens of `backend`, and the pair template for other readers of its file."""
    known = [token for token in SPECIAL_TOKENS if backend.token_to_id(token) is not None]
    backend.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in known])
    separator = backend.token_to_id(SEPARATOR)
    backend.post_processor = processors.TemplateProcessing(
        single="$A", pair=f"$A {SEPARATOR} $B:1", special_tokens=[(SEPARATOR, separator)]
    )
    return backend


def _words(backend: Tokenizer, texts: Iterable[str], kind: str) -> Words:
    """Count the pre-tokenizer's words in `texts`, without the names of special tokens."""
    words: Words = Counter()
    for text in texts:
        if backend.normalizer is not None:
            text = backend.normalizer.normalize_str(text)
        if kind == "char":  # each character is a word; the pre-tokenizer splits alike, thirty times slower
            words.update(text)
        else:
            words.update(word for word, _ in backend.pre_tokenizer.pre_tokenize_str(text))
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

    backend = Tokenizer(models.BPE(unk_token=UNKNOWN))
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
    characters = sorted({character for word in words for character in word})
    opening = {character: chr(0x10000 + 2 * index) for index, character in enumerate(characters)}
    inside = {character: chr(0x10001 + 2 * index) for index, character in enumerate(characters)}
    written = {symbol: character for character, symbol in opening.items()}
    written |= {symbol: character for character, symbol in inside.items()}
    pieces = set(inside.values())
    symbols = Counter({opening[word[0]] + "".join(inside[c] for c in word[1:]): n for word, n in words.items()})
    vocabulary: dict[str, int] = {token: index for index, token in enumerate(SPECIAL_TOKENS)}
    for token, index in Tokenizer(_merged_pairs(symbols, config)).get_vocab().items():
        if token not in vocabulary:
            vocabulary["##" * (token[0] in pieces) + "".join(written[symbol] for symbol in token)] = index
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


def read_vocabulary(path: Path) -> dict[str, int]:
    """Read token to id from a file with one token a line.

    The id is the line's number from 0. Missing special tokens follow the last line; if all four are missing, they come
    first as ids 0 to 3. Raises DataError for a blank line, a repeated token or bad UTF-8.
    """
    tokens: dict[str, None] = {}
    for line, row in enumerate(rows_of_file(path), 1):
        try:
            token = row.content.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{path}:{line}: is not UTF-8 at byte {error.start}") from None
        if not token:
            raise DataError(f"{path}:{line}: is blank; expected a token")
        if token in tokens:
            raise DataError(f"{path}:{line}: repeats the token '{escaped(token)}'")
        tokens[token] = None
    if not tokens:
        raise DataError(f"{path}: is empty; expected a token a line")
    missing = [token for token in SPECIAL_TOKENS if token not in tokens]
    ordered = [*missing, *tokens] if len(missing) == len(SPECIAL_TOKENS) else [*tokens, *missing]
    return {token: index for index, token in enumerate(ordered)}
