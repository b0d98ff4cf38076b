"""The weights of a pre-trained encoder in a folder of Hugging Face's layout: where they are, and how they come into a model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from recurcli.encoders.folder import weight_files
from recurcli.encoders.pretrained import Pretrained, TokenHead
from recurcli.errors import ModelError, escaped
from recurcli.files import OpenedFile, read_header
from recurcli.network import Backbone, LanguageModel
from recurcli.runs.network_files import load_tensors

_OLD_NAMES = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}


class FolderWeights(NamedTuple):
    """Where the tensors of a model are in a folder of Hugging Face's layout."""

    names: dict[str, str]
    """The names in the files, by that of the model of `transformers` and of its head."""
    files: dict[str, Path]
    """The file of each name."""
    bias: str | None
    """The name of the bias of the output; None: the folder has no head for masked tokens with the word embeddings as output
    weights, or none is wanted."""


FLOATS = ("F64", "F32", "F16", "BF16")
"""The types of weights that are read, as the header of a safetensors file names them."""


def find_weights(model: Backbone, folder: Path) -> FolderWeights:
    """Return where the tensors of `model`, whose encoder is the pre-trained one, are in `folder`; it may be on the meta device.

    Only headers are read. Raises ModelError if a name or shape is not that of the folder's config.json.
    """
    encoder = model.encoder
    assert isinstance(encoder, Pretrained)
    if len(model.embedding.weight) > encoder.vocab_size:
        sizes = f"{len(model.embedding.weight):,} tokens, and its config.json a vocab_size of {encoder.vocab_size:,}"
        raise ModelError(f"{folder}: its tokenizer has {sizes}")
    stored = {name: (file, entry) for file in weight_files(folder) for name, entry in read_header(file).items()}
    shapes = {name: tensor.shape for name, tensor in encoder.model.state_dict().items()}
    shapes[encoder.word_embeddings] = torch.Size((encoder.vocab_size, model.embedding.weight.shape[1]))
    names = {name: _place(name, encoder.prefix, stored) for name in shapes}
    bias = None
    if isinstance(model, LanguageModel) and isinstance(model.token_head, TokenHead):
        head = {name: tensor.shape for name, tensor in model.token_head.model.state_dict().items()}
        places = {name: _place(name, encoder.prefix, stored) for name in head}
        if encoder.is_tied and all(place in stored for place in places.values()):
            bias = next((name for name in model.token_head.bias_names if name in stored), None)
        if bias is not None:
            shapes |= {**head, bias: torch.Size((encoder.vocab_size,))}
            names |= {**places, bias: bias}
    for name, place in names.items():
        file, entry = stored.get(place, (weight_files(folder)[0], None))
        if entry is None:
            raise ModelError(f"{file}: has no tensor {name}, which its config.json needs")
        if entry.get("dtype") not in FLOATS:
            kind = escaped(repr(entry.get("dtype")))
            raise ModelError(
                f"{file}: {place} has the type {kind}; recur reads floating-point weights, none that are quantised"
            )
        if (found := list(entry.get("shape", ()))) != list(shapes[name]):
            raise ModelError(f"{file}: {place} has the shape {found}, but its config.json gives {list(shapes[name])}")
    return FolderWeights(names, {place: stored[place][0] for place in names.values()}, bias)


@torch.no_grad()
def load_folder(model: Backbone, weights: FolderWeights) -> None:
    """Copy `weights` into `model`. Rows of the word embeddings that no token has are left out.

    Raises ModelError for a damaged file, and for values that are not finite.
    """
    encoder, rows = model.encoder, len(model.embedding.weight)
    assert isinstance(encoder, Pretrained)
    files = map(OpenedFile, sorted({*weights.files.values()}))
    read = {name: tensor for file in files for name, tensor in load_tensors(file).items()}
    tensors = {name: read[place].float() for name, place in weights.names.items()}
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            place = weights.names[name]
            raise ModelError(f"{weights.files[place]}: {place} has values that are not finite")
    encoder.model.load_state_dict({name: tensors[name] for name in encoder.model.state_dict()})
    model.embedding.weight.copy_(tensors[encoder.word_embeddings][:rows])
    segments = encoder.segment_embeddings()
    if segments is not None and model.embedding.second_text is not None:
        model.embedding.second_text.copy_(tensors[segments][1] - tensors[segments][0])
    if isinstance(model, LanguageModel) and isinstance(model.token_head, TokenHead) and weights.bias is not None:
        head = model.token_head.model
        head.load_state_dict({name: tensors[name] for name in head.state_dict()})
        model.token_bias.copy_(tensors[weights.bias][:rows])


def _place(name: str, prefix: str, stored: Mapping[str, Any]) -> str:
    """Return the name of the tensor `name` among the `stored` ones of a base model or of one with a head, or `name` itself."""
    old = next((name.removesuffix(new) + old for new, old in _OLD_NAMES.items() if name.endswith(new)), name)
    names = (f"{before}{same}" for same in (name, old) for before in ("", f"{prefix}."))
    return next((place for place in names if place in stored), name)
