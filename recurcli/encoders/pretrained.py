"""An encoder that others trained, in Hugging Face's layout: BERT and its family (Devlin et al., 2019), by `transformers`.

It is called with `inputs_embeds`. The word embeddings are those of `TokenEmbedding`; positions, the vector of the first
segment and LayerNorm stay inside, so the states are those of `AutoModel` for the same ids.

Shapes: B batch, T positions, W columns of the word embeddings, D hidden size, V vocabulary, N chosen positions.
"""

from collections.abc import Mapping
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from recurcli.encoders.config import PretrainedConfig
from recurcli.encoders.encoder import Encoder, cut_padding
from recurcli.encoders.folder import read_architecture
from recurcli.errors import UsageError, escaped, require_extra


class Pretrained(Encoder):
    """Maps embeddings (B, T, W) to hidden states (B, T, D). BERT's pooler, a layer of its head, is left out."""

    Config = PretrainedConfig
    scratch_learning_rate = pretrained_learning_rate = 3e-5
    """One of BERT's rates (2e-5, 3e-5, 5e-5; Devlin et al., 2019, appendix A.3), and of ModernBERT's search (Warner et al.,
    2024)."""
    second_after_separator = True

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__()
        require_extra("hf", "the encoder pretrained", "transformers")
        from transformers import AutoModel

        self.architecture = _made(config)
        try:
            self.model = AutoModel.from_config(self.architecture)
        except Exception as error:  # of many kinds, for values that do not fit together
            raise UsageError(f"encoder.architecture: transformers refuses it: {escaped(error, 300)}") from None
        self.prefix = str(self.model.base_model_prefix)
        self.is_tied = bool(getattr(self.architecture, "tie_word_embeddings", True))
        """Whether the output weights of the folder's head for masked tokens are its word embeddings, as they are here."""
        self.max_length = config.max_length
        words = self.model.get_input_embeddings()
        self.embedding_size = int(words.weight.shape[1])
        self.vocab_size = int(words.weight.shape[0])
        self.word_embeddings = next(name for name, module in self.model.named_modules() if module is words) + ".weight"
        """The name of the word embeddings among the tensors of the model."""
        _replace(self.model, words, nn.Identity())
        if getattr(self.model, "pooler", None) is not None:
            self.model.pooler = None

    @property
    def layers(self) -> nn.ModuleList:  # type: ignore[override]
        """The layers of the model, or the one that ALBERT repeats."""
        lists = [module for module in self.model.modules() if isinstance(module, nn.ModuleList)]
        return max(lists, key=len)

    def segment_embeddings(self) -> str | None:
        """Return the name of the vectors of segments among the tensors of the model; None: it has none of a second text."""
        found = (name for name in self.model.state_dict() if name.endswith("token_type_embeddings.weight"))
        name = next(found, None)
        return name if name is not None and len(self.model.get_parameter(name)) > 1 else None

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        length = x.shape[1]
        x, mask = cut_padding(x, mask, self.max_length)
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(2), 0.0)
            # Where nothing is real the first position is, since a softmax over nothing is NaN.
            first = F.pad(mask.new_ones(1, 1), (0, mask.shape[1] - 1))
            mask = mask | (~mask.any(dim=1, keepdim=True) & first)
        h: Tensor = self.model(inputs_embeds=x, attention_mask=None if mask is None else mask.long()).last_hidden_state
        return h if h.shape[1] == length else F.pad(h, (0, 0, 0, length - h.shape[1]))

    def token_head(self) -> "TokenHead":
        return TokenHead(self.architecture)


class TokenHead(nn.Module):
    """The head for masked tokens before its output weights, which are the word embeddings: (N, D) -> (N, W)."""

    def __init__(self, architecture: Any) -> None:
        super().__init__()
        from transformers import AutoModelForMaskedLM

        model = AutoModelForMaskedLM.from_config(architecture)
        _replace(model, model.base_model, _States())
        decoder = model.get_output_embeddings()
        self.bias_names = [
            name for name, tensor in model.named_parameters() if tensor.shape == (architecture.vocab_size,)
        ]
        """The names that the bias of the output has in the files of the model."""
        _replace(model, decoder, nn.Identity())
        for name in [name for name, _ in model.named_parameters() if name in self.bias_names]:
            owner, _, last = name.rpartition(".")
            setattr(model.get_submodule(owner), last, None)
        self.model = model

    def forward(self, states: Tensor) -> Tensor:
        logits: Tensor = self.model(inputs_embeds=states.unsqueeze(0))[0]
        return logits.squeeze(0)


class _States(nn.Module):
    """Stands for the encoder in a model whose head alone is wanted, and returns its states as they are given."""

    def forward(self, *_: object, inputs_embeds: Tensor, **__: object) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        return BaseModelOutput(last_hidden_state=inputs_embeds)


def _replace(model: nn.Module, old: nn.Module, new: nn.Module) -> None:
    """Put `new` in the place of the module `old` inside `model`."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if child is old:
                setattr(module, name, new)


def _made(config: PretrainedConfig) -> Any:
    """Return the configuration of `transformers`.

    Raises UsageError if `config` names no folder, or the family rejects it, and ModelError as `read_architecture` does.
    """
    if config.architecture is None:
        raise UsageError("encoder.path is null; name a folder in Hugging Face's layout with --set encoder.path=FOLDER")
    from transformers import AutoConfig

    # AutoModel computes attention by sdpa where the family has it, else eagerly, since nothing names another way.
    values: Mapping[str, Any] = read_architecture(config.architecture, "encoder.architecture")["architecture"]
    try:
        made = AutoConfig.for_model(**values)
    except Exception as error:  # of many kinds, also those of another package
        raise UsageError(f"encoder.architecture: {escaped(error, 300)}") from None
    if config.dropout is not None:
        for key, value in made.to_dict().items():
            if key.endswith(("dropout", "dropout_prob")) and isinstance(value, int | float):
                setattr(made, key, config.dropout)
    made.legacy = True  # of DeBERTa-v2: the head without the word embeddings in it
    return made
