"""The activation of the hidden units of a causal VAE, arranged for training."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class Activation(torch.autograd.Function):
    """tanh of the hidden units of the columns in `order`, in that order.

    Inputs have the shape `[..., batch, columns, hidden]`; in memory, the values of a column lie
    together. tanh is computed as 2 sigmoid(2 x) - 1, which takes a fraction of the time; the digits
    that this loses near zero do not matter in training.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, order: Tensor) -> Tensor:
        hidden = (
            inputs.transpose(-3, -2)
            .index_select(-3, order)
            .mul_(2)
            .sigmoid_()
            .mul_(2)
            .sub_(1)
            .transpose(-3, -2)
        )
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
