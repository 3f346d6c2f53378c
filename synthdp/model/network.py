"""The causally consistent VAE: p(x) = integral p(z) prod_i p(x_i | parents(i), z).

Each column is a categorical over its levels, with logits from a hidden layer of the column's
parents and z. The encoder q(z | x) sees all columns, with missing values as a level (Ma et al.,
"EDDI", 2019, arXiv:1809.11142v4, where missing inputs carry no evidence; here missing is itself
modelled). Without any edge this is the plain VAE, the non-causal twin, by the same code.

The structure is exact: a column's logits are a function of its parents and z alone, because no
weight connects it to any other column (`ParentLookup` has rows for parents only).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from synthdp.model.ancestral import DECODE_LEVELS, DIRECT, Architecture
from synthdp.privacy.dpsgd.layers import Features, MaskedLinear, NodeLinear, ParentLookup
from synthdp.privacy.dpsgd.training import PerExampleLoss


class CausalVae(PerExampleLoss):
    """Encoder, decoder and negative ELBO."""

    decode_levels: NodeLinear
    decoded: Tensor

    def __init__(
        self,
        architecture: Architecture,
        *,
        generator: torch.Generator,
        features: Features | None = None,
        groups: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """`generator` draws the starting weights, which depend on nothing else.

        `features` has one matrix `[levels, features]` per column. With it, weights are those of
        features, so that training uses the order of levels. Each of the `groups` of columns has a
        decoding layer, padded to its widest column; columns in no group are in no loss. `plain`
        gives the weights of the same network without features and groups.
        """
        super().__init__()
        self.architecture, self.features = architecture, features
        columns, width = len(architecture.sizes), architecture.hidden
        self.latent = latent = len(architecture.latent_of)
        self.groups = tuple(map(tuple, groups or [range(columns)]))
        self.encode_columns = ParentLookup([range(columns)], architecture.sizes, width, features)
        self.encode_latent = MaskedLinear(torch.ones(2 * latent, width))
        self.decode_parents = (
            ParentLookup(architecture.parents, architecture.sizes, width, features)
            if any(architecture.parents)
            else None
        )
        mask = torch.zeros(columns, width, latent)
        for k, reached in enumerate(architecture.latent_of):
            mask[list(reached), :, k] = 1
        self.decode_latent = MaskedLinear(mask.flatten(0, 1))
        if architecture.direct:
            self.register_buffer(DIRECT, torch.zeros(architecture.shapes()[DIRECT]))
        for k, group in enumerate(self.groups):
            layer = NodeLinear(
                width,
                [architecture.sizes[i] for i in group],
                [features[i] for i in group] if features else None,
            )
            # Released margins give a better bias than gradients would.
            layer.bias.requires_grad_(False)
            self.add_module(_decoder(k), layer)
        self.register_buffer(
            "decoded", torch.tensor([i for group in self.groups for i in group]), persistent=False
        )
        for part in (self.encode_columns, self.encode_latent, self.decode_latent):
            part.reset(generator)
        if self.decode_parents is not None:
            self.decode_parents.reset(generator)

    def decoders(self) -> list[tuple[tuple[int, ...], NodeLinear]]:
        layers = (layer for layer in self.children() if isinstance(layer, NodeLinear))
        return list(zip(self.groups, layers, strict=True))

    def start_from(self, marginals: Sequence[npt.NDArray[np.float64]]) -> None:
        """Set each column's bias to the log of its released probabilities; training keeps it."""
        self._set_biases([torch.from_numpy(np.log(shares)).float() for shares in marginals])

    @torch.no_grad()
    def start_from_tables(self, direct: Tensor, biases: Sequence[Tensor]) -> None:
        """Set the parents' own logits and each column's biases; training keeps both."""
        self.get_buffer(DIRECT).copy_(direct)
        self._set_biases(biases)

    @torch.no_grad()
    def _set_biases(self, biases: Sequence[Tensor]) -> None:
        for group, layer in self.decoders():
            for place, i in enumerate(group):
                layer.bias[place, : len(biases[i])] = biases[i]

    @torch.no_grad()
    def plain(self, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All weights of the network without features and groups; columns in no group get zeros."""
        self.cpu().load_state_dict(dict(trained), strict=False)
        weights = {
            name: p.detach().clone()
            for name, p in self.named_parameters()
            if not name.startswith(DECODE_LEVELS)
        }
        for name, layer in self.named_children():
            if isinstance(layer, ParentLookup):
                weights[f"{name}.weight"] = layer.table().detach().clone()
        shapes = self.architecture.shapes()
        for part in ("weight", "bias"):
            whole = torch.zeros(shapes[f"{DECODE_LEVELS}.{part}"])
            for group, layer in self.decoders():
                values = layer.table() if part == "weight" else layer.bias
                whole[list(group), ..., : values.shape[-1]] = values
            weights[f"{DECODE_LEVELS}.{part}"] = whole
        if self.architecture.direct:
            weights[DIRECT] = self.get_buffer(DIRECT).detach().clone()
        return weights

    def forward(self, codes: Tensor, noise: Tensor) -> Tensor:
        """Negative ELBO of each row of levels `[..., batch, columns]`, in nats, `[..., batch]`.

        `noise` `[..., batch, latent]` is the standard normal draw behind z.
        """
        mean, log_variance = self.encode(codes)
        lengths = list(map(len, self.groups))
        inputs = self._inputs(codes, mean + noise * (log_variance / 2).exp())
        hidden: Tensor = Activation.apply(inputs, self.decoded)  # type: ignore[no-untyped-call]
        parts = torch.split(hidden, lengths, -2) if len(lengths) > 1 else (hidden,)
        surprise = (log_variance.exp() + mean.square() - 1 - log_variance).sum(-1) / 2
        for k, levels in enumerate(torch.split(codes.index_select(-1, self.decoded), lengths, -1)):
            # Column by column, as the logits lie in memory.
            logits = self.get_submodule(_decoder(k))(parts[k]).transpose(-3, -2)
            if self.architecture.direct:
                logits = logits + self._direct_logits(self.groups[k], codes, logits.shape[-1])
            loss = F.cross_entropy(logits.flatten(0, -2), levels.mT.flatten(), reduction="none")
            surprise = surprise + loss.view(levels.mT.shape).sum(-2)
        return surprise

    def encode(self, codes: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log variance of q(z | x), each `[..., batch, latent]`."""
        hidden = torch.relu(self.encode_columns(codes).squeeze(-2))
        mean, log_variance = self.encode_latent(hidden).chunk(2, dim=-1)
        return mean, log_variance.clamp(-8.0, 4.0)

    def _inputs(self, codes: Tensor, z: Tensor) -> Tensor:
        """Inputs of the hidden units of each column, `[..., batch, columns, hidden]`."""
        hidden = torch.unflatten(self.decode_latent(z), -1, (-1, self.architecture.hidden))
        if self.decode_parents is not None:
            hidden = hidden + self.decode_parents(codes)
        return hidden

    def logits(self, codes: Tensor, z: Tensor) -> Tensor:
        """Logits of every column, `[batch, columns, levels]`; -inf for levels that it lacks."""
        hidden, sizes = self._inputs(codes, z).tanh(), self.architecture.sizes
        levels = hidden.new_full((len(z), len(sizes), max(sizes)), -torch.inf)
        for group, layer in self.decoders():
            decoded = layer(hidden[:, group])
            if self.architecture.direct:
                direct = self._direct_logits(group, codes, decoded.shape[2])
                decoded = decoded + direct.transpose(-3, -2)
            levels[:, group, : decoded.shape[2]] = decoded
        return levels

    def column_logits(self, column: int, codes: Tensor, z: Tensor) -> Tensor:
        """Logits of one column alone, `[batch, levels of the column]`."""
        rows = slice(column * self.architecture.hidden, (column + 1) * self.architecture.hidden)
        latent = self.decode_latent
        hidden = F.linear(z, (latent.weight * latent.mask)[rows], latent.bias[rows])
        if self.decode_parents is not None:
            hidden = hidden + self.decode_parents.of_node(column, codes)
        size = self.architecture.sizes[column]
        place, layer = next(
            (group.index(column), layer) for group, layer in self.decoders() if column in group
        )
        logits = torch.tanh(hidden) @ layer.table()[place, :, :size] + layer.bias[place, :size]
        return logits + self._direct_logits([column], codes, size)[..., 0, :, :]

    def _direct_logits(self, columns: Sequence[int], codes: Tensor, width: int) -> Tensor:
        """The parents' own logits `[..., columns, batch, width]`; zeros without `direct`."""
        shape = self.architecture
        out = codes.new_zeros((*codes.shape[:-1], width), dtype=torch.float32)
        parts = []
        for column in columns:
            rows, parents = shape.rows_of(column), list(shape.parents[column])
            if not shape.direct or not parents:
                parts.append(out)
                continue
            table = self.get_buffer(DIRECT)[..., rows.start : rows.stop, :width]
            places = codes[..., parents] + codes.new_tensor(shape.offsets_of(column))
            if table.dim() == 3:  # models side by side, each with a table of its own
                models = torch.arange(len(table), device=codes.device)
                places = places + len(rows) * models[:, None, None]
            summed = F.embedding_bag(
                places.flatten(0, -2), table.reshape(-1, table.shape[-1]), mode="sum"
            )
            # Models side by side have levels padded beyond those of the table.
            parts.append(F.pad(summed, (0, width - table.shape[-1])).view(out.shape))
        return torch.stack(parts, -3)


def _decoder(group: int) -> str:
    return DECODE_LEVELS + (f"_{group}" if group else "")


class Activation(torch.autograd.Function):
    """tanh of the hidden units of the columns in `order`, in that order.

    Inputs have the shape `[..., batch, columns, hidden]`; in memory, the values of a column lie
    together. tanh is computed as 2 sigmoid(2 x) - 1, which takes a fraction of the time; the digits
    that this loses near zero do not matter in training.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, order: Tensor) -> Tensor:
        own = inputs.transpose(-3, -2).index_select(-3, order)
        hidden = own.mul_(2).sigmoid_().mul_(2).sub_(1).transpose(-3, -2)
        ctx.save_for_backward(hidden, order)
        ctx.columns = inputs.shape[-2]
        return hidden

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        hidden, order = ctx.saved_tensors
        inner = torch.ops.aten.tanh_backward(gradient, hidden)
        if len(order) == ctx.columns:
            return inner.index_select(-2, order.argsort()), None
        whole = inner.new_zeros(*inner.shape[:-2], ctx.columns, inner.shape[-1])
        return whole.index_copy_(-2, order, inner), None
