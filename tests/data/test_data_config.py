"""The data and tokenizer sections of a preset are checked when they are read."""

import subprocess
import sys

import pytest

from recurcli.data.config import DataConfig, TokenizerConfig
from recurcli.validation import InvalidConfig, parse_config


def test_defaults_need_no_key() -> None:
    assert parse_config(DataConfig, {}) == DataConfig()
    assert parse_config(TokenizerConfig, {}) == TokenizerConfig()


def test_a_row_has_room_for_two_tokens_and_their_separator() -> None:
    with pytest.raises(InvalidConfig, match="max_length: must be at least 3"):
        parse_config(DataConfig, {"max_length": 2})


@pytest.mark.parametrize("key", ["path", "text", "pair", "label", "id"])
def test_a_column_without_a_name_is_refused(key: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{key}: must not be empty"):
        parse_config(DataConfig, {key: ""})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"delimiter": ";;"}, "delimiter: must be one character and no line end, not ';;'"),
        ({"quote": ""}, "quote: must be one character and no line end, not ''"),
        ({"delimiter": '"'}, "quote: must not be the delimiter, '\"'"),
        ({"quote": ","}, "quote: must not be the delimiter, ','"),
        ({"quote": "'", "delimiter": "'"}, 'quote: must not be the delimiter, "\'"'),
    ],
)
def test_marks_that_cannot_separate_fields_are_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        parse_config(DataConfig, values)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"vocab_size": 7}, "vocab_size: must be at least 8"),
        ({"min_frequency": 0}, "min_frequency: must be at least 1"),
        ({"kind": "bpe", "vocabulary": "vocab.txt"}, "vocabulary: is for kind char, wordpiece or whitespace, not bpe"),
        ({"kind": "word"}, "kind"),
        ({"lowercas": True}, "did you mean 'lowercase'"),
    ],
)
def test_a_tokenizer_that_cannot_be_is_refused(values: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        parse_config(TokenizerConfig, values)


def test_reading_data_needs_neither_torch_nor_datasets() -> None:
    code = (
        "import sys, recurcli.data.config, recurcli.data.tasks, recurcli.data.splits, recurcli.tokens.tokenizer\n"
        "sys.exit('torch' in sys.modules or 'datasets' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
