"""Several processes sum the gradients of one DP-SGD run, by torch.distributed. Everything else stays with the first.

The first process alone has the table, and draws from the run's randomness: one Poisson sample of the whole table a step,
and the noise, once. To the others, its helpers, it deals examples of the batch, with their normals and the weights
of the step; they give back 64-bit sums of clipped gradients, which it adds to its own before it rounds and makes noisy. So
the settings object of a run makes sampler, noise and event as it does in one process, and what is released differs in the order of additions
alone. Helpers keep nothing from step to step but the weights, hold no randomness, charge nothing and write nothing.

Who gets an example is decided by its own normals, as its group is (`clipped_layer.stable_sum`). One example more or less thus
changes one group of one process, and the proof there holds for the parts of groups that processes have: w processes
make at most w - 1 groups more, and w more additions of k groups' sums, for which its bound has room up to
`MOST_PROCESSES`: 0.75 (1 + 1024 / 12291) < 0.82 of the 2^-14 that are charged.

Opacus' DistributedDPOptimizer (1.6) is not used: it adds the noise to the first process's part, and the others' parts, in
32 bits, after it. The sum is then no longer on the lattice, so that its low bits say where they were. It also divides by the
number of processes, and is only right where each has been told a part of the expected batch.

Rows pass between the processes as they are, and torch.distributed neither encrypts nor asks who is there: only for one
machine, or a network, that nobody else reaches. [what is said of rounding is derived here]
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from synthdp.errors import OutputError, SynthdpError
from synthdp.privacy.clipped_layer import Sums
from synthdp.privacy.dpsgd_settings import DpSgd
from synthdp.privacy.mechanisms import Arrays

MOST_PROCESSES = 1024
PATIENCE = timedelta(days=1)  # helpers wait while tables are measured and a graph is found
DISMISS, TRAINING, STEP = range(3)  # kinds of orders
TOLD = "told"  # name of what goes with a module's description


class LostProcess(OutputError):
    """Another process has ended before its work was done."""


def share_of(latents: Tensor, processes: int) -> Tensor:
    """The process of each example, `[batch]`, by its own normals `[batch, latent]`: each as likely as any other."""
    share: Tensor = torch.special.ndtr(latents[:, 0].double()) * processes
    return share.long().clamp(max=processes - 1)


class Helpers:
    """The other processes, as the first one sees them. Made by `joined`."""

    def __init__(self, processes: int, *, on_this_machine: int) -> None:
        self.processes, self.on_this_machine = processes, on_this_machine
        self.threads = 1
        self._there = True

    def own_threads(self, of_all: int) -> int:
        """Threads for each process, where all processes of this machine may take `of_all`."""
        self.threads = max(1, of_all // self.on_this_machine)
        return self.threads

    def begin(self, settings: DpSgd, described: Arrays, *, device: str) -> None:
        """A training begins: all get its settings, its module as described, and the kind of device."""
        told = {"settings": asdict(settings), "device": device, "threads": self.threads}
        message = _packed({**described, TOLD: np.frombuffer(json.dumps(told).encode(), dtype=np.uint8)})
        self._order(TRAINING, [len(message)])
        _all(message)

    def deal(self, params: Sequence[nn.Parameter], batch: Tensor, latents: Tensor) -> Tensor:
        """Send the weights to all and each helper its examples; a mask `[batch]` of those that are left to this process."""
        share = share_of(latents, self.processes).cpu()
        counts = torch.bincount(share, minlength=self.processes)
        self._order(STEP, [batch.shape[1], *counts[1:].tolist()])
        _all(torch.cat([p.detach().flatten() for p in params]).cpu())
        for rank in range(1, self.processes):
            if counts[rank]:
                own = (share == rank).to(batch.device)
                _to(rank, _rows(batch[own], latents[own]))
        return (share == 0).to(batch.device)

    def total(self, params: Sequence[nn.Parameter], own: Sums) -> Sums:
        """The sums over all processes, from those of this one."""
        flat = flattened(params, own)
        _add_up(flat)
        parts = torch.split(flat.to(params[0].device), [p.numel() for p in params])
        return {p: part.view_as(p) for p, part in zip(params, parts, strict=True)}

    def dismiss(self) -> None:
        """Nothing is left to do for them: they end. May be called again."""
        if self._there:
            self._there = False
            self._order(DISMISS, [])

    def _order(self, kind: int, numbers: Sequence[int]) -> None:
        order = torch.zeros(self.processes + 1, dtype=torch.int64)
        order[: 1 + len(numbers)] = torch.tensor([kind, *numbers])
        _all(order)


@dataclass(frozen=True)
class Order:
    """What a helper is to do: the kind, and numbers whose meaning goes with it."""

    kind: int
    numbers: list[int]


class Work:
    """The first process, as a helper sees it."""

    def __init__(self, rank: int, processes: int) -> None:
        self.rank, self.processes = rank, processes

    def order(self) -> Order:
        """Wait for the next order."""
        order = torch.zeros(self.processes + 1, dtype=torch.int64)
        _all(order)
        kind, *numbers = order.tolist()
        return Order(kind, numbers)

    def training(self, order: Order) -> tuple[DpSgd, str, Arrays]:
        """Settings, this process's device, and the module's description; takes as many threads as it is told."""
        message = torch.zeros(order.numbers[0], dtype=torch.uint8)
        _all(message)
        arrays = _unpacked(message)
        told: dict[str, Any] = json.loads(arrays.pop(TOLD).tobytes())
        torch.set_num_threads(told["threads"])
        return DpSgd(**told["settings"]), own_device(told["device"]), arrays

    def step(self, order: Order, params: Sequence[nn.Parameter], latent: int) -> tuple[Tensor, Tensor]:
        """This helper's examples of a step and their normals; sets `params` to the weights of the step."""
        weights = torch.zeros(sum(p.numel() for p in params))
        _all(weights)
        with torch.no_grad():
            for p, part in zip(params, torch.split(weights, [p.numel() for p in params]), strict=True):
                p.copy_(part.view_as(p))
        columns, rows = order.numbers[0], order.numbers[self.rank]
        message = torch.zeros(rows * (2 * columns + 4 * latent), dtype=torch.uint8)
        if rows:
            _from_first(message)
        latents = message[: rows * 4 * latent].numpy().view(np.float32).reshape(rows, latent)
        codes = message[rows * 4 * latent :].numpy().view(np.uint16).reshape(rows, columns)
        return torch.from_numpy(codes.astype(np.int64)), torch.from_numpy(latents)

    def give(self, params: Sequence[nn.Parameter], sums: Sums) -> None:
        """Hand in the sums of a step."""
        _add_up(flattened(params, sums))


def own_device(kind: str) -> str:
    """The device of this kind that is this process's: of several GPUs each process of a machine takes its own."""
    return kind if kind == "cpu" else f"{kind}:{int(os.environ.get('LOCAL_RANK', 0)) % torch.cuda.device_count()}"


def flattened(params: Sequence[nn.Parameter], sums: Sums) -> Tensor:
    """Sums of all parameters as one vector in 64 bits; zeros where there are none."""
    return torch.cat([sums[p].flatten().cpu() if p in sums else torch.zeros(p.numel(), dtype=torch.float64) for p in params])


@contextmanager
def joined() -> Iterator[Helpers | Work | None]:
    """What this process is to the others that torchrun started with it; None where it started none.

    Raises:
        LostProcess: they do not find each other.
    """
    if not is_torchrun():
        yield None
        return
    rank, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if processes > MOST_PROCESSES:
        raise OutputError(f"{processes} processes are too many", hint=f"start at most {MOST_PROCESSES}")
    with _told():
        # Sums are made noisy on the CPU, so that is where they are added: NCCL would have them come back from the GPU all the same.
        torch.distributed.init_process_group("gloo", timeout=PATIENCE)
    try:
        with _first(processes) if rank == 0 else nullcontext(Work(rank, processes)) as group:
            yield group
    finally:
        with suppress(RuntimeError):  # of a group that is broken already: what broke it is what is told
            torch.distributed.destroy_process_group()


@contextmanager
def _first(processes: int) -> Iterator[Helpers]:
    """The others, dismissed at the end, also where that is a mistake of the user."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # torchrun's, when another has died: an interruption like Ctrl-C
    helpers = Helpers(processes, on_this_machine=int(os.environ.get("LOCAL_WORLD_SIZE", processes)))
    try:
        yield helpers
        helpers.dismiss()
    except LostProcess:
        raise
    except SynthdpError:
        with suppress(LostProcess):  # what went wrong first is what is told
            helpers.dismiss()
        raise
    signal.signal(signal.SIGTERM, before)


def is_torchrun() -> bool:
    """Whether torchrun started this process together with others."""
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return all(name in os.environ for name in names) and int(os.environ["WORLD_SIZE"]) > 1


@contextmanager
def _told() -> Iterator[None]:
    """A process that does not answer is the machine's trouble, not a bug."""
    lost = False
    try:
        yield
    except RuntimeError:  # its text names addresses
        lost = True
    if lost:
        # torchrun ends all others as soon as one has died: this one is about to end, and has yet to say why.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hint = "what was charged stays charged; `synthdp resume OUT` goes on and pays nothing again, with as many processes as you like"
        raise LostProcess("another process of this release has ended, or does not answer", hint=hint)


def _all(tensor: Tensor) -> None:
    """From the first process to all."""
    with _told():
        torch.distributed.broadcast(tensor, src=0)


def _to(rank: int, tensor: Tensor) -> None:
    with _told():
        torch.distributed.send(tensor, dst=rank)


def _from_first(tensor: Tensor) -> None:
    with _told():
        torch.distributed.recv(tensor, src=0)


def _add_up(tensor: Tensor) -> None:
    """The sum over all processes; only the first one's is of any use."""
    with _told():
        torch.distributed.reduce(tensor, dst=0)


def _rows(batch: Tensor, latents: Tensor) -> Tensor:
    """Normals, then levels: so both lie as their types must."""
    codes = batch.cpu().numpy().astype(np.uint16)
    return torch.frombuffer(bytearray(latents.cpu().numpy().tobytes() + codes.tobytes()), dtype=torch.uint8)


def _packed(arrays: Arrays) -> Tensor:
    from safetensors.numpy import save

    return torch.frombuffer(bytearray(save(arrays)), dtype=torch.uint8)


def _unpacked(message: Tensor) -> Arrays:
    from safetensors.numpy import load

    arrays: Arrays = load(message.numpy().tobytes())
    return arrays
