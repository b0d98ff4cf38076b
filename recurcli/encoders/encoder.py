"""The base class of every encoder, and the block that several encoders share, to which each adds its attention.

    h^0 = dropout(x + sinusoidal positions)                               dropout as in Vaswani et al., 2017, section 5.4
    post-norm (Vaswani et al., 2017)        a  = LayerNorm(h + dropout(attention(h)))
                                            h' = LayerNorm(a + dropout(feed_forward(a)))
    pre-norm (Xiong et al., 2020)           a  = h + dropout(attention(LayerNorm(h)))
                                            h' = a + dropout(feed_forward(LayerNorm(a)))
                                            and one LayerNorm after the last layer

Shapes here and in every encoder: B batch, T positions, D hidden size, L layers, H heads, K head size.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from recurcli.encoders.config import FeedForwardConfig, NormConfig, RecurrentConfig
from recurcli.layers import Dropout, FeedForward, SelfAttention, sinusoidal_positions
from recurcli.ops.precision import at_least_float32, without_autocast
from recurcli.ops.windowed import reversed_sequences

LayerStats = dict[str, Any]
"""Numbers and lists of numbers by name. `attention` is a tensor (B, T, C) or (B, H, T, C) of weights on C keys, whose rows sum
to 1."""

StepState = dict[str, Any]
"""What `Encoder.step` carries from one position to the next: the number of positions read, and a state for each layer."""

CarriedState = dict[str, Tensor]
"""What an encoder carries from one window of a text to the next, by name: tensors (B, …) without gradients."""

PADDING_LIMIT = 1e10
"""The largest magnitude of values at padded positions. Ours: squares of much larger ones overflow float32, and a mask does not
stop the NaN that they become. TokenEmbedding gives padding the vector of a token."""


NOT_CAUSAL = "encoder.causal is false, so a position reads later ones"
"""The `step_obstacle` of an encoder whose `step` needs `encoder.causal=true`."""


class Encoder(nn.Module):
    """Maps embeddings (B, T, D) to hidden states (B, T, D).

    `mask` (B, T) is bool and True at real tokens; None: all tokens are real. Padding is on the right. What padded positions
    hold, up to PADDING_LIMIT in magnitude, never changes the states of real tokens, and a row without real tokens gives finite
    numbers. An encoder adds positions in `forward`, if it needs them. Initial weights are drawn from torch's global generator,
    which the caller seeds.
    """

    Config: ClassVar[type[Any]]
    """The frozen dataclass that `__init__` takes."""
    concatenates_positions: ClassVar[bool] = False
    """Whether TokenEmbedding concatenates a position vector to each token vector (TransJect)."""
    adds_positions: bool = False
    """Whether `forward` adds sinusoidal positions, or attends to them. TokenEmbedding then scales its rows to their norm."""
    scalar_names: ClassVar[tuple[str, ...]] = ()
    """Names of vector parameters that hold one scalar for each head. They have the scalars' learning rate."""
    undecayed_names: ClassVar[tuple[str, ...]] = ()
    """Names of matrices that have no weight decay."""
    scratch_learning_rate: ClassVar[float] = 1e-3
    """Learning rate from fresh weights where the preset says null; ours."""
    rate_factor_with_word_dropout: ClassVar[float] = 1.0
    """Factor of `scratch_learning_rate` for single texts with word dropout, of which `epochs: auto` then shows fewer."""
    pretrained_learning_rate: ClassVar[float] = 1e-4
    """Learning rate after pre-training where the preset says null (Xu, Hu & Tang, 2021, section 4: StarSaber)."""
    min_effective_length: int | None = None
    """The least number of tokens of a text that reaches what distinguishes the encoder; None: every text does."""
    second_after_separator: ClassVar[bool] = False
    """Whether the second text of a pair begins after the first separator, as in BERT, and not with it."""
    embedding_size: int | None = None
    """W, the columns of the token embedding; None: those of the hidden states."""
    export_obstacle: str = ""
    """The reason why this encoder cannot be exported to ONNX, for error messages. It is empty if it can."""
    checkpoint_obstacle: str = "its layers cannot be recomputed one by one"
    """The reason why `checkpoint_layers` cannot be set, for error messages. It is empty if it can."""
    kernel_obstacle: str = "it has no kernel"
    """The reason why `use_kernel` cannot be called, for error messages. It is empty if it can."""
    checkpoint_layers: bool = False
    """Whether a training recomputes each layer in the backward pass, which saves the memory of its activations."""
    carry_obstacle: str = "it has no state to carry from one window to the next"
    """The reason why `carry` cannot be called, for error messages. It is empty if it can."""
    step_obstacle: str = "it has no form that takes one position at a time"
    """The reason why `step` cannot be called, for error messages. It is empty if it can."""
    step_state_grows: bool = False
    """Whether the state of `step` grows with the text, as that of softmax attention does."""
    layers: nn.ModuleList
    """A layer may have a method `stats` with the arguments of its `forward`, which returns `LayerStats`. `recur eval
    --diagnose` calls it without gradients and shows its numbers and the entropy of `attention`."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, D) of the embeddings `x` (B, T, D)."""
        raise NotImplementedError

    def use_kernel(self) -> None:
        """Compute the attention by a Triton kernel from now on, on CUDA."""
        raise NotImplementedError

    def apply_layer(self, layer: Callable[..., Any], *inputs: Any) -> Any:
        """Return layer(*inputs), with `checkpoint_layers` by torch.utils.checkpoint; the gradients are the same."""
        if self.checkpoint_layers and self.training and torch.is_grad_enabled():
            return checkpoint(layer, *inputs, use_reentrant=False)
        return layer(*inputs)

    def carry(self, x: Tensor, state: CarriedState | None = None) -> tuple[Tensor, CarriedState]:
        """Return the hidden states (B, T, D) of `x` (B, T, D), and the state at its end, for a causal encoder.

        `x` goes on where the window ended that left `state`; None: it begins the texts. All its tokens are real. The states are
        those of one pass over all windows, if these are multiples of the encoder's segment or chunk. A gradient ends at the
        beginning of its window.
        """
        raise NotImplementedError

    def step(self, x: Tensor, state: StepState | None = None) -> tuple[Tensor, StepState]:
        """Return the hidden state (B, D) of the next position x (B, D), and the state after it, for a causal encoder.

        `state` is that of the position before; None: x begins the texts. The hidden states are those of `forward` for all
        positions at once, and so are their gradients, which go back through all steps.
        """
        raise NotImplementedError

    def auxiliary_losses(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return weighted scalars by name. Training adds them to its loss and logs them."""
        return {}

    def token_head(self) -> nn.Module | None:
        """Return what maps states (N, D) to (N, W) before the logits of tokens; None: the states are taken as they are."""
        return None

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return numbers and lists of numbers by name about the whole encoder, after it was applied to x (B, T, D).

        `recur eval --diagnose` shows them.
        """
        return {}

    def capped_layers(self) -> list[int]:
        """Return the numbers, from 1, of the layers whose scalar `is_at_cap`, where it has hardly a gradient."""
        layers = getattr(self, "layers", ())
        return [number for number, layer in enumerate(layers, 1) if getattr(layer, "is_at_cap", False)]

    def scalars(self) -> dict[str, float]:
        """Return numbers to follow over a training, such as alpha, by the name of their module.

        They are those that the modules' own `scalars` return. metrics.jsonl has them, with `encoder.` before the name.
        """
        return {
            f"{name}.{key}": value
            for name, module in self.named_modules()
            if module is not self and hasattr(module, "scalars")
            for key, value in module.scalars().items()
        }

    def project_(self) -> None:
        """Project the weights onto their constraint set; called without gradients after each optimiser step."""


def cut_padding(x: Tensor, mask: Tensor | None, most: int | None) -> tuple[Tensor, Tensor | None]:
    """Return `x` (B, T, D) and `mask` without the positions after `most`, which are padding in all texts; None: no limit.

    A batch may be padded to a length that no text has. Raises ValueError for a longer text.
    """
    if most is None or x.shape[1] <= most:
        return x, mask
    if mask is None or mask[:, most:].any():
        raise ValueError(f"the input has {x.shape[1]} positions, and the encoder's max_length is {most}")
    return x[:, :most], mask[:, :most]


class Mixer(nn.Module):
    """A recurrence over a text in place of attention: (B, T, D) -> (B, T, D), in time and memory linear in T.

    Unless it is `causal`, half of the channels read each text from its last real token to its first one, and the states of both
    halves are concatenated before the output map (ours). A subclass has `inputs`, `recur` and `to_output`.
    """

    causal: bool
    to_output: nn.Module

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x if mask is None else x.masked_fill(~mask[..., None], 0.0)
        parts = [at_least_float32(part) for part in self.inputs(x)]
        with without_autocast(x):  # a recurrence adds up its rounding errors
            if self.causal:
                states = self.recur(*parts)
            else:
                states = _half_reversed(self.recur(*(_half_reversed(part, mask) for part in parts)), mask)
        return self.output(states.flatten(2), x)

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the output (B, D) of the next position x (B, D), and the state after it; None: there is none before."""
        parts = [at_least_float32(part) for part in self.inputs(x)]
        with without_autocast(x):
            states, after = self.recur_on(parts, state)
        return self.output(states, x), after

    def recur_on(self, parts: list[Tensor], state: Any) -> tuple[Tensor, Any]:
        """Return the states (B, D) of one position whose `inputs` are `parts` (B, …), and what `recur` knows after it."""
        raise NotImplementedError

    def inputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return what `recur` takes of x (B, T, D): tensors (B, T, …) whose first half of columns reads forwards."""
        raise NotImplementedError

    def recur(self, *parts: Tensor) -> Tensor:
        """Return the states of all channels, each read forwards: (B, T, D), or (B, T, halves, …)."""
        raise NotImplementedError

    def output(self, states: Tensor, x: Tensor) -> Tensor:
        """Return the output (B, T, D) of all states (B, T, D) and x (B, T, D)."""
        found: Tensor = self.to_output(states.to(x.dtype))
        return found

    def stats(self, x: Tensor, mask: Tensor | None) -> LayerStats:
        """Return nothing: there are no weights on single tokens."""
        return {}


def initial_decays(heads: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Return A and the bias of Δ of H decays exp(-softplus(Δ) exp(A)), drawn as in Mamba-2 (its code): (H,) x 2.

    exp(A) is uniform from 1 to 16, and softplus of the bias is log-uniform from 0.001 to 0.1.
    """
    steps = torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)).exp()
    return nn.Parameter(torch.empty(heads).uniform_(1, 16).log()), nn.Parameter(steps + torch.log(-torch.expm1(-steps)))


def _half_reversed(x: Tensor, mask: Tensor | None) -> Tensor:
    """x (B, T, C) or (B, T, C, …) with the second half of C read from each text's last real token on."""
    ahead, back = x.chunk(2, dim=2)
    return torch.cat([ahead, reversed_sequences(back, mask)], dim=2)


class BlockLayer(nn.Module):
    """One layer of the equations above, for any attention or recurrence: (B, T, D) -> (B, T, D); `mask` (B, T) is True at real
    tokens.

    `more` is what else the attention takes.
    """

    def __init__(self, config: NormConfig | RecurrentConfig, attention: SelfAttention | Mixer) -> None:
        super().__init__()
        self.pre_norm = config.norm == "pre"
        self.attention: Any = attention
        self.attention_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(
            config.hidden_size, config.inner_size, config.activation, config.feed_forward_dropout
        )
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = Dropout(config.dropout)

    def forward(self, h: Tensor, mask: Tensor | None, *more: object) -> Tensor:
        return self._after(h, self.attention(self._given(h), mask, *more))

    def step(self, h: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return h' (B, D) of one position h (B, D), and the state of the attention after it."""
        mixed, state = self.attention.step(self._given(h), state)
        return self._after(h, mixed), state

    def stats(self, h: Tensor, mask: Tensor | None, *more: object) -> LayerStats:
        """Return the statistics of the attention. They do not depend on `more`."""
        return self.attention.stats(self._given(h), mask)

    def _given(self, h: Tensor) -> Tensor:
        """Return the input of the attention."""
        return self.attention_norm(h) if self.pre_norm else h

    def _after(self, h: Tensor, mixed: Tensor) -> Tensor:
        """Return h' from h and the output of the attention `mixed`, all of one shape."""
        h = h + self.dropout(mixed)
        if self.pre_norm:
            return h + self.dropout(self.feed_forward(self.feed_forward_norm(h)))
        h = self.attention_norm(h)
        return self.feed_forward_norm(h + self.dropout(self.feed_forward(h)))


class BlockEncoder(Encoder):
    """Sinusoidal positions, if it `adds_positions`, then L layers.

    TokenEmbedding scales the embeddings where `adds_positions` is True (Vaswani et al., section 3.4). If the Config has a
    key `max_length`, `forward` raises ValueError for a longer text, and the states of padding after `max_length` are 0.
    """

    adds_positions = True
    checkpoint_obstacle = ""
    Attention: ClassVar[type[Any]]
    """The subclass of SelfAttention or Mixer in each layer; its `__init__` takes the Config."""

    def __init__(self, config: FeedForwardConfig) -> None:
        super().__init__()
        self.adds_positions = self.adds_positions and getattr(config, "position", "sinusoidal") == "sinusoidal"
        self.dropout = Dropout(config.dropout)
        self.layers = nn.ModuleList(self.build_layer(config) for _ in range(config.num_layers))
        pre_norm = getattr(config, "norm", "") == "pre"
        self.final_norm = nn.LayerNorm(config.hidden_size) if pre_norm else nn.Identity()
        self.max_length: int | None = getattr(config, "max_length", None)
        is_plain = isinstance(self.layers[0], BlockLayer) and type(self).forward is BlockEncoder.forward
        if is_plain and hasattr(self.layers[0].attention, "step"):
            is_causal = getattr(config, "causal", False)
            self.step_obstacle = "" if is_causal else NOT_CAUSAL
        self.min_effective_length = getattr(self.layers[0].attention, "min_effective_length", None)

    def build_layer(self, config: Any) -> nn.Module:
        """Return one layer with initial weights. `config` is the encoder's."""
        return BlockLayer(config, self.Attention(config))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        length = x.shape[1]
        x, mask = cut_padding(x, mask, self.max_length)
        h = self.dropout(self.with_positions(x))
        for layer, more in zip(self.layers, self.given_to_layers(h), strict=True):
            h = self.apply_layer(layer, h, mask, *more)
        h = self.final_norm(h)
        return h if h.shape[1] == length else F.pad(h, (0, 0, 0, length - h.shape[1]))

    def given_to_layers(self, h: Tensor) -> Iterable[tuple[Tensor, ...]]:
        """Return what the attention of each layer takes besides its states and mask; h (B, T, D) are those of the first."""
        return [()] * len(self.layers)

    def with_positions(self, x: Tensor, first: int = 0) -> Tensor:
        """Return x (B, T, D) and its positions, of which `first` is the first, if the encoder adds them."""
        return x + sinusoidal_positions(x, first) if self.adds_positions else x

    def step(self, x: Tensor, state: StepState | None = None) -> tuple[Tensor, StepState]:
        position, before = (0, [None] * len(self.layers)) if state is None else (state["position"], state["layers"])
        h, after = self.dropout(self.with_positions(x[:, None], position).squeeze(1)), []
        for layer, own in zip(cast(Iterable[BlockLayer], self.layers), before, strict=True):
            h, found = layer.step(h, own)
            after.append(found)
        return self.final_norm(h), {"position": position + 1, "layers": after}
