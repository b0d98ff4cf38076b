"""The data and tokenizer sections of a preset are checked when they are read."""

import subprocess
import sys

import pytest

from recurcli.config import DataConfig, TokenizerConfig
from recurcli.validation import InvalidConfig, parse_config


@pytest.mark.parametrize(
    ("kind", "values", "reason"),
    [
        *[(DataConfig, {key: ""}, f"{key}: '' should have at least 1 char") for key in ("path", "text", "label", "id")],
        (DataConfig, {"max_length": 2}, "max_length: 2 should"),
        (DataConfig, {"dev_fraction": 0.6}, "dev_fraction: 0.6 should"),
        (DataConfig, {"text": []}, r"text: \[\] should"),
        (DataConfig, {"labels": ["a"]}, "labels: .* should have at least 2 items"),
        (DataConfig, {"labels": ["1", 1]}, "labels: must be different"),
        (DataConfig, {"files": {"trian": "x"}}, "files: has no split 'trian'; did you mean 'train'"),
        (DataConfig, {"delimiter": ";;"}, "delimiter: must be one character that is not a line end, not ';;'"),
        (DataConfig, {"quote": ""}, "quote: must be one character that is not a line end, not ''"),
        (DataConfig, {"delimiter": '"'}, "quote: must not be the delimiter, '\"'"),
        (DataConfig, {"quote": ","}, "quote: must not be the delimiter, ','"),
        (TokenizerConfig, {"vocab_size": 7}, "vocab_size: 7 should"),
        (TokenizerConfig, {"min_frequency": 0}, "min_frequency: 0 should"),
        (TokenizerConfig, {"kind": "bpe", "vocabulary": "vocab.txt"}, "vocabulary: is for kind char, .* not bpe"),
        (TokenizerConfig, {"kind": "word"}, "kind: 'word' should be"),
        (TokenizerConfig, {"lowercas": True}, "did you mean 'lowercase'"),
    ],
)
def test_a_value_that_cannot_be_is_refused(kind: type[object], values: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        parse_config(kind, values)


def test_reading_data_needs_neither_torch_nor_datasets() -> None:
    code = (
        "import sys, recurcli.config, recurcli.data.tasks, recurcli.data.splits, recurcli.tokens.tokenizer\n"
        "sys.exit('torch' in sys.modules or 'datasets' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
