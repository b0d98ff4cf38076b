"""Tiny random encoders of ten families, made and saved as Hugging Face folders, with a WordPiece tokenizer of their own."""

from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import models, normalizers, pre_tokenizers, processors

WORDS = ["good", "bad", "plot", "film", "##s", "a", "b", "c", "d", "e", "the", "was", ".", "it"]
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
POSITIONS = {"max_position_embeddings": 24}
FAMILIES: dict[str, dict[str, Any]] = {
    "bert": {**SIZES, **POSITIONS},
    "roberta": {**SIZES, **POSITIONS, "type_vocab_size": 1},
    "xlm-roberta": {**SIZES, **POSITIONS, "type_vocab_size": 1},
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, **POSITIONS},
    "electra": {**SIZES, **POSITIONS, "embedding_size": 8},
    "albert": {**SIZES, **POSITIONS, "embedding_size": 8},
    "deberta-v2": {**SIZES, **POSITIONS, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "modernbert": {**SIZES, **POSITIONS, "local_attention": 8, "global_attn_every_n_layers": 2},
    "mpnet": {**SIZES, **POSITIONS},
    "ernie": {**SIZES, **POSITIONS, "use_task_id": True},
}
OF_ROBERTA = ("roberta", "xlm-roberta", "mpnet")


def special_tokens(family: str) -> list[str]:
    """The special tokens of a family: padding, unknown, class, separator, mask."""
    if family in OF_ROBERTA:
        return ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    return ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def tokenizer(family: str) -> tokenizers.Tokenizer:
    """The tokenizer of a family: its special tokens, its template for pairs, and WORDS."""
    special = special_tokens(family)
    roberta = family in OF_ROBERTA
    vocab = {token: index for index, token in enumerate([*special, *WORDS])}
    made = tokenizers.Tokenizer(models.WordPiece(vocab=vocab, unk_token=special[3 if roberta else 1]))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(special)
    made.post_processor = (
        processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=False, add_prefix_space=False)
        if roberta
        else processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    )
    if family in ("modernbert", "mpnet"):  # as in the files of most models
        first, last = special[0 if roberta else 2], special[2 if roberta else 3]
        made.post_processor = processors.TemplateProcessing(
            single=f"{first} $A {last}",
            pair=f"{first} $A {last}{f' {last}' * roberta} $B:1 {last}:1",
            special_tokens=[(token, vocab[token]) for token in (first, last)],
        )
    return made


def config_of(family: str, **more: Any) -> Any:
    from transformers import AutoConfig

    size = len(WORDS) + 5 + 3  # more rows than tokens, as where V is rounded up
    return AutoConfig.for_model(
        family, vocab_size=size, pad_token_id=int(family in OF_ROBERTA), **{**FAMILIES[family], **more}
    )


def save_folder(folder: Path, family: str = "bert", *, head: bool = True, **more: Any) -> Path:
    """Save a random model of `family` with `folder`'s name, with its head for masked tokens or without; returns it."""
    from transformers import AutoModel, AutoModelForMaskedLM

    torch.manual_seed(3)
    model = (AutoModelForMaskedLM if head else AutoModel).from_config(config_of(family, **more))
    with torch.no_grad():
        for parameter in model.parameters():  # no zero hides a wrong place
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer(family).save(str(folder / "tokenizer.json"))
    return folder
