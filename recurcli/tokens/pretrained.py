"""The tokenizer of an encoder in Hugging Face's layout: its tokenizer.json, or a vocab.txt of WordPiece."""

import json
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

from recurcli.errors import ModelError
from recurcli.files import OpenedFile, naming_damage, read_limited
from recurcli.tokens.tokenizer import MAX_FILE, Template, Tokenizer, read_vocabulary

PADS, UNKNOWNS, MASKS = ("[PAD]", "<pad>"), ("[UNK]", "<unk>"), ("[MASK]", "<mask>")
"""The names of the special tokens, BERT's and RoBERTa's."""
CLASS, SEPARATOR = "[CLS]", "[SEP]"


class PretrainedTokenizer(Tokenizer):
    """Encodes texts with the ids and the template of another tokenizer, such as `[CLS] a [SEP] b [SEP]`.

    `mask_id` is -1 if it has no token for masks. Raises ModelError if it has no token for padding or none between two texts.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._use(backend)
        vocab = backend.get_vocab()
        self.tokens = [""] * (max(vocab.values(), default=-1) + 1)
        for token, token_id in vocab.items():
            self.tokens[token_id] = token
        pad, self.unknown_id, mask = (
            next((vocab[name] for name in names if name in vocab), None) for names in (PADS, UNKNOWNS, MASKS)
        )
        self.template = _template(backend)
        if pad is None or not self.template.between:
            lacks = f"token {' or '.join(PADS)}" if pad is None else "template for two texts"
            raise ModelError(f"its tokenizer has no {lacks}")
        self.pad_id, self.mask_id = pad, -1 if mask is None else mask
        self.separator_id = self.template.between[0]
        added = (token_id for token_id, token in backend.get_added_tokens_decoder().items() if token.special)
        kept = {*sum(self.template, ()), *added, self.pad_id, self.mask_id} - {self.unknown_id, -1}
        self.special_ids = tuple(sorted(kept))

    @classmethod
    def of_folder(cls, folder: Path) -> "PretrainedTokenizer":
        """Return the tokenizer of a model's folder. Raises ModelError if it has none, a damaged one, or one without words."""
        if (folder / "tokenizer.json").is_file():
            tokenizer = cls.load(OpenedFile(folder / "tokenizer.json"))
        else:
            words = folder / "vocab.txt"
            vocab = read_vocabulary(words, special=()) if words.is_file() else {}
            if not {CLASS, SEPARATOR, PADS[0], UNKNOWNS[0]} <= vocab.keys():
                raise ModelError(f"{folder}: has no tokenizer.json, and its vocab.txt is none of WordPiece")
            path, settings = folder / "tokenizer_config.json", {}
            if path.is_file():
                with naming_damage(path):
                    settings = dict(json.loads(read_limited(path, MAX_FILE)))
            tokenizer = cls(_word_pieces(vocab, settings))
        if not tokenizer.word_ids.size:
            raise ModelError(f"{folder}: its tokenizer has no token beside the special ones")
        return tokenizer


def _word_pieces(vocab: dict[str, int], settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """Return BERT's tokenizer with the tokens `vocab` and the `settings` of tokenizer_config.json."""
    backend = tokenizers.Tokenizer(models.WordPiece(vocab=vocab, unk_token=UNKNOWNS[0]))
    backend.normalizer = normalizers.BertNormalizer(
        lowercase=bool(settings.get("do_lower_case", True)),
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", True)),
        strip_accents=settings.get("strip_accents"),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    names = [name for name in (PADS[0], UNKNOWNS[0], CLASS, SEPARATOR, MASKS[0]) if name in vocab]
    backend.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in names])
    backend.post_processor = processors.TemplateProcessing(
        single=f"{CLASS} $A {SEPARATOR}",
        pair=f"{CLASS} $A {SEPARATOR} $B:1 {SEPARATOR}:1",
        special_tokens=[(name, vocab[name]) for name in (CLASS, SEPARATOR)],
    )
    return backend


def _template(backend: tokenizers.Tokenizer) -> Template:
    """Return the special ids that the tokenizer puts before, between and after two texts."""
    text = backend.encode("a", add_special_tokens=False)
    whole = backend.post_process(text, backend.encode("a", add_special_tokens=False))
    places = [index for index, special in enumerate(whole.special_tokens_mask) if not special]
    size = len(text)
    if not size or len(places) != 2 * size:
        return Template((), (), ())
    ids, first, second = tuple(whole.ids), places[size - 1] + 1, places[size]
    return Template(ids[: places[0]], ids[first:second], ids[places[-1] + 1 :])
