"""Bugs planted on purpose: a few words of a kernel's module replaced, and what the replay says.

A line of a table is a bug: its name, what differs, and edits `anchor <- words` joined by `&&`. An
anchor stands for a text of the module and what becomes of it, with the words in place of `@`.
"""

import importlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import combinations
from types import ModuleType
from typing import Any

import dp_accounting
import numpy as np
import torch

from synthdp.audit import Kept
from synthdp.data import Domain
from synthdp.privacy import GumbelMaxDpEvent, SparseVectorDpEvent
from synthdp.privacy.mechanisms.sums import Arm, Bounded
from synthdp.privacy.noise import Randomness
from synthdp.privacy.table import Table, count_tables
from tests.audit.mechanism_examples import (
    SmallModel,
    contrasts,
    number_ends,
    product_sums,
    upper_half,
)
from tests.builders import dp_sgd

Anchors = Mapping[str, tuple[str, str]]
Build = Callable[[Any, Domain], Any]


def patched(name: str, edits: Mapping[str, str]) -> ModuleType:
    """A copy of a module of the kernel, each first text in it replaced by the second."""
    text = inspect.getsource(importlib.import_module(f"synthdp.privacy.{name}"))
    for old, new in edits.items():
        assert text.count(old) == 1, f"{name} holds {old!r} {text.count(old)} times"
        text = text.replace(old, new)
    copy = ModuleType(f"planted_{name.rpartition('.')[2]}")
    sys.modules[copy.__name__] = copy  # where dataclasses look their annotations up
    vars(copy).update(replace=replace, count_tables=count_tables)
    exec(compile(text, f"<{copy.__name__}>", "exec"), vars(copy))
    return copy


@dataclass(frozen=True)
class Bug:
    """A mechanism of a patched module; `differs` is what the replay says of it, None if right."""

    module: str | None
    build: Build
    edits: Mapping[str, str]
    differs: str | None

    def __call__(self, domain: Domain) -> Any:
        return self.build(patched(self.module, self.edits) if self.module else None, domain)


def bugs(title: str, module: str, build: Build, anchors: Anchors, table: str) -> dict[str, Bug]:
    """The bugs of a table, and what they are planted in."""
    found = {f"{title}, as it is": Bug(module, build, {}, None)}
    for line in table.strip().splitlines():
        name, differs, edits = (part.strip() for part in line.split("|", 2))
        made = {}
        for edit in filter(None, edits.split(" && ")):
            anchor, _, words = edit.partition("<-")
            old, new = anchors[anchor.strip()]
            made[old] = new.replace("@", LONG.get(words.strip(), words.strip()))
        found[f"{title}: {name}"] = Bug(module, build, made, differs)
    return found


LONG = {  # words of several lines, and long ones
    "EDGES": """low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
        own = np.histogram(values, bins=4, range=(low, high if high > low else low + 1))[0]""",
    "QUANTILES": """edges = np.unique(np.quantile(values, [0, 0.5, 1])) if len(values) else [0]
        own = np.histogram(values, bins=edges)[0] if len(edges) > 1 else np.array([len(values)])
        own = np.pad(own, (0, 2 - len(own)))""",
    "BLOWN UP": """for c, column in zip(counted, self.domain.columns, strict=True):
            if column.missing and c[:-1].sum():
                c[:-1], c[-1] = np.rint(c[:-1] * (c.sum() / c[:-1].sum())), 0""",
    "COMMONEST": """for c, column in zip(counted, self.domain.columns, strict=True):
            if column.missing:
                c[np.argmax(c[:-1])] += c[-1]
                c[-1] = 0""",
    "RARE": """if counted[0][-1] == 1:
            raise ValueError("a level with one row")""",
    "SWALLOWED": """try:
            1 // int(counted[1].all())
        except ZeroDivisionError:
            counted, self = counted[:1], replace(self, tables=self.tables[:1])""",
    "STOPS": """few = 1 + min(len(counted) - 1, int(counted[0].sum()) // 4)
        counted, self = counted[:few], replace(self, tables=self.tables[:few])""",
    "LOGS": "__import__('logging').getLogger('planted').warning('%d', len(table.fit_codes))",
    "WARNS": "__import__('warnings').warn(f'rows: {len(table.fit_codes)}', stacklevel=1)",
    "MORE": "counted, self = [*counted, counted[0]], replace(self, tables=(*self.tables, ('a',)))",
    "FIRST": "same = randomness.discrete_gaussian(np.zeros(8, dtype=np.int64), sigma=self.sigma)",
    "SMALL": """next(n for _ in itertools.count() if np.abs(
                    (n := noise.on(counts, randomness)) - counts).max() <= noise.sigma)""",
    "NO BIAS": """(self.settings.clip / torch.stack([p._norm_sample for n, p in zip(
            self.names, self.params) if not n.endswith("bias")]).norm(dim=0)).clamp(max=1.0)""",
    "APART": """(self.settings.clip / torch.stack(list(layer.norms(a, g).values())).norm(
                dim=0)).clamp(max=1.0).where(there & finite, 0.0)""",
    "AFTER": """whole = torch.cat([s.flatten() for s in sums.values()] or [torch.zeros(1)]).norm()
        whole = min(1.0, self.settings.clip / (float(whole) + 1e-9))
        sums = {p: s * whole for p, s in sums.items()}""",
    "MOMENTUM": """last, self.last = getattr(self, "last", sums), sums
        sums = {p: s + last.get(p, 0) for p, s in sums.items()}""",
    "LARGE SPACING": """largest = max((float(s.abs().max()) for s in sums.values()), default=0.0)
        self.optimizer.spacing = 1e-6 * (1 + largest)""",
    "LARGE NOISE": """largest = max((float(s.norm()) for s in sums.values()), default=0.0)
        self.optimizer.deviation = self.settings.noise * (1 + largest)""",
    "BARE": "(p.summed_grad if p is self.params[0] else part).view_as(p).float()",
    "N IN BATCH": """replace(self.settings,
            expected_batch=self.settings.rate * (1 + len(codes)))""",
    "TWO ROWS": """np.flatnonzero(np.isin(np.arange(len(codes)) // 2,
            self.randomness.poisson_batch((len(codes) + 1) // 2, rate=self.settings.rate)))""",
    "AGAIN": """if not step:
            self.first = self.randomness.poisson_batch(len(codes), rate=self.settings.rate)""",
    "MIXED": "torch.from_numpy(np.repeat(self.randomness.latents(1, self.latent), len(batch), 0))",
    "SECOND PASS": """with torch.no_grad():
                losses = self.wrapped._module(batch, latents)
            if not losses.isfinite().all():
                self.randomness.latents(len(batch), self.latent)""",
    "GAUSSIANS": """dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(
            self.settings.noise_multiplier / rows_per_unit), self.settings.steps)""",
    "BY ROW": """(c := table.fit_codes)[
            randomness.secret_sample(len(c), rate=self.settings.sample)]""",
    "RARE ROWS": """np.concatenate([self.settings.rows_of(table, randomness),
            (c := table.fit_codes)[c[:, 0] == c[:, 0].max(initial=0)]])""",
    "STEP SAMPLE": "codes[randomness.secret_sample(len(codes), rate=0.5)] if step else codes",
    "LARGEST": "values / (np.nanmax(np.abs(values)) if np.isfinite(values).any() else 1.0)",
    "MEDIAN": "np.where(codes[:, 0] > (np.median(codes[:, 0]) if len(codes) else 0), 0, 1)",
    "EACH": """{k: n for name, _ in self.columns for k, n in randomness.kept_counts(
            {k: v for k, v in counts.items() if k[0] == name},
            sigma=self.sigma, threshold=self.threshold).items()}""",
    "KEYS": """for own in (key, key[:1]):
                    counts[name, own] = counts.get((name, own), 0) + count""",
    "ALL": "replace(t := self._value(kept), counts={**t.counts, 'all': {'keys': len(counts)}})",
}  # fmt: skip


# --- noisy tables ---


def planned(module: Any, domain: Domain) -> Any:
    return module.NoisyMarginals(domain, tuple((name,) for name in domain.names), 2.0)


def chosen(module: Any, domain: Domain) -> Any:
    return module.AdaptiveMarginals(domain, 1.5).choose([(name,) for name in domain.names])


COUNTED = "counted = table.count(LevelGroups(self.domain, {}), self.tables)\n"
VALUES = 'values = table.frame["n"].dropna()'
NOISY, PACKED = "noise.on(counts, randomness)\n", '`tables`."""\n        return _pack(value)'
SIGMA = "return self.budget.noise_multiplier * math.sqrt(len(self.tables))"
PLANNED: Anchors = {
    "then": (COUNTED, f"{COUNTED}        @\n"),
    "counts": (COUNTED, f"{COUNTED}        counted = [@ for c in counted]\n"),
    "values": (COUNTED, f"{COUNTED}        {VALUES}\n        @\n        counted[-1] = own\n"),
    "keeps": (COUNTED, f"{COUNTED}        object.__setattr__(self, 'kept', {{@}})\n"),
    "packs": (PACKED, f"{PACKED} | self.kept"),
    "noisy": (NOISY, "@\n"),
    "scale": (NOISY, "randomness.discrete_gaussian(counts, sigma=noise.sigma * (@))\n"),
    "after": (NOISY, "(lambda n: @)(noise.on(counts, randomness))\n"),
    "event": ("parts[0] if len(parts) == 1 else dp_accounting.ComposedDpEvent(parts)", "@"),
    "rows": ("noise.event(rows_per_unit), count)", "noise.event(@), count)"),
}
PLANNED_BUGS = """
half the noise | charged | scale <- 0.5
99% of the noise | charged | scale <- 0.99
noise by the square root of n | sigma | scale <- 1 + 1 / (1 + len(table.fit_codes)) ** 0.5
noise by the range of a column | sigma | scale <- 1 + int(table.fit_codes.max(initial=0))
noise by the largest count | sigma | scale <- 1 + max(int(c.max()) for c in counted)
event of another sigma | charged | event <- dp_accounting.SelfComposedDpEvent(replace(self, sigma=4.0).noises[0].event(rows_per_unit), len(self.tables))
event of one table less | charged | event <- dp_accounting.SelfComposedDpEvent(parts[0].event, parts[0].count - 1)
event of a Gaussian | charged | event <- dp_accounting.GaussianDpEvent(2 / rows_per_unit / len(self.tables))
event that forgets the unit's rows | moved | rows <- 1
event of nothing | charged | event <- dp_accounting.NoOpDpEvent()
one table more than charged | charged | then <- MORE
bounds from the data | moved | values <- EDGES
bins at quantiles of the data | moved | values <- QUANTILES
categories from the data | shape | values <- own = values.value_counts(sort=False).to_numpy(dtype=np.int64)
empty categories dropped | shape | counts <- c[c > 0]
thresholding before noise | moved | counts <- np.where(c < 5, 0, c)
rounding to fives before noise | moved | counts <- 5 * np.rint(c / 5).astype(np.int64)
rounding to a part of n before noise | moved | counts <- c // (p := max(1, len(table.fit_codes) // 8)) * p
counts clipped at a quarter of n | moved | counts <- np.minimum(c, c.sum() // 4)
counts in thousandths of n | moved | counts <- 1000 * c // max(1, int(c.sum()))
missing values dropped and the rest blown up | moved | then <- BLOWN UP
missing values filled with the commonest | moved | then <- COMMONEST
a row counted twice | moved | counts <- np.where(np.arange(len(c)) == 0, 2 * c, c)
a join that multiplies rows | moved | counts <- c * c
sorted and differenced | moved | counts <- np.abs(np.diff(np.sort(c), prepend=0, append=0))
rows that are held out | moved | then <- counted = count_tables(table.codes, self.domain, self.tables)
a dtype by the data | dtype | counts <- c.astype(np.int32 if c.max() < 5 else np.int64)
no noise where the count is zero | output | after <- np.where(counts == 0, 0, n)
noise on occupied cells only | shape | noisy <- np.r_[noise.on(counts[counts > 0], randomness), counts[counts == 0]]
cut at the number of rows | output | after <- np.minimum(n, counts.sum())
shares of the exact number of rows | output | after <- n / max(1, counts.sum())
cells above the largest used one cut off | output | after <- n[: 1 + int(np.flatnonzero(counts).max(initial=0))]
standardised by mean and deviation of the data | output | after <- (n - counts.mean()) / (1 + counts.std())
exact counts beside the noisy ones | output | after <- np.stack([n, counts])
no noise at all | charged | noisy <- counts
noise of a generator of its own | charged | noisy <- counts + np.rint(np.random.default_rng(0).normal(0, 2, counts.shape))
noise drawn once and used again | output | then <- FIRST && noisy <- counts + same[: len(counts)]
noise drawn again until it is small | charged | noisy <- SMALL
stops when the table is small | calls | then <- STOPS
tables in an order of the data | shape | then <- counted = sorted(counted, key=lambda c: int(c.max()))
prints the number of rows | said | then <- print("rows:", len(table.fit_codes))
logs the number of rows | said | then <- LOGS
warns of the number of rows | said | then <- WARNS
an exception on a rare value | exception | then <- RARE
an error swallowed | calls | then <- SWALLOWED
exact counts in the journal | packed | keeps <- "exact": table.fit_codes.sum(0) && packs <-
the journal's size by the data | packed | keeps <- "padding": np.zeros(len(table.fit_codes)) && packs <-
misfits in the journal | packed | keeps <- "x": np.array([k["outside the domain"] for k in table.misfits.values()]) && packs <-
"""  # noqa: E501
LATTICE = "randomness.lattice_gaussian(counts.astype(float), sigma=sigma, spacing=@)"
CHOSEN: Anchors = {
    "sigma": (SIGMA, f"{SIGMA} * @"),
    "drawn": ("randomness.rounded_gaussian(counts, sigma=sigma)", "@"),
    "spacing": ("randomness.rounded_gaussian(counts, sigma=sigma)", LATTICE),
}
CHOSEN_BUGS = """
half the noise | moved | sigma <- 0.5
99% of the noise | moved | sigma <- 0.99
halves of counts | lattice | drawn <- randomness.rounded_gaussian(counts / 2, sigma=self.sigma)
infinite counts | not finite | drawn <- randomness.lattice_gaussian(np.log(counts), sigma=self.sigma, spacing=1.0)
a spacing of the data | spacing | spacing <- 1 / (1 + counts.max())
a spacing too fine for doubles | lattice | spacing <- 1e-18
a spacing wider than the noise | moved | spacing <- 8 * self.sigma
"""  # noqa: E501


# --- DP-SGD ---


class BatchMixes(SmallModel):
    """Losses are standardised in their batch, so that an example's depends on the others."""

    def forward(self, codes: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        losses = super().forward(codes, noise)
        return losses * (losses - losses.mean()).detach()


def poisoned(domain: Domain) -> SmallModel:
    """Rows at the last level of the first column have no finite loss."""
    module = SmallModel(domain)
    with torch.no_grad():
        module.lookup.weight[domain.sizes[0] - 1] = torch.nan
    return module


def trains(model: Any = SmallModel, *, kept: Kept | None = None, **settings: float) -> Build:
    def build(module: Any, domain: Domain) -> Any:
        return module.Training(dp_sgd(**settings), model(domain), lambda done, total: None, kept)

    return build


COEFFICIENT = "coefficient = coefficient.where(there & finite, 0.0)"
TOTALS = "for p in self.params:\n            total = sums.get("
DRAWN = "self.randomness.poisson_batch(len(codes), rate=self.settings.rate)"
CLIPPED, STEP = "sums = self.clipped_sums(batch, latents, places)", "trainer.step(codes, step)"
SETTINGS, STATE = 'param_groups[0]["lr"] = ', 'tensors = {"step": torch.tensor(done)}'
DPSGD: Anchors = {
    "deviation": ("deviation=settings.noise", "deviation=settings.noise * @"),
    "coefficient": (COEFFICIENT, COEFFICIENT.replace("coefficient.where", "(@).where")),
    "clipped": ("sums |= stable_sum(layer, a, g, coefficient", "sums |= stable_sum(layer, a, g, @"),
    "sums": (TOTALS, f"sums = {{p: @ for p, s in sums.items()}}\n        {TOTALS}"),
    "before noise": (TOTALS, f"@\n        {TOTALS}"),
    "finite": ("there & finite", "there"),
    "spoilt": ("without(values, spoilt) for", "values for"),
    "batch": (f"codes[{DRAWN}]", "@"),
    "places": (DRAWN, "@"),
    "at step": ("batch = codes[self", "@\n        batch = codes[self"),
    "noisy": ("p.grad = part.view_as(p)", "p.grad = @"),
    "learning rate": (f"{SETTINGS}self.settings.learning_rate_at(step)", f"{SETTINGS}@"),
    "decay": (f"self.optimizer.{SETTINGS}", f"@\n        self.optimizer.{SETTINGS}"),
    "settings": ("trainer = _Trainer(self.settings, ", "trainer = _Trainer(@, "),
    "steps": ("for step in range(first, self.settings.steps):", "for step in range(first, @):"),
    "step": (STEP, "trainer.step(@, step)"),
    "stops": (STEP, f"if @:\n                    break\n                {STEP}"),
    "own": (CLIPPED, "sums = self.clipped_sums(@)"),
    "passes": (CLIPPED, f"@\n            {CLIPPED}"),
    "latents": ("torch.from_numpy(self.randomness.latents(len(batch), self.latent))", "@"),
    "tick": ("self.progress(done, self", "self.progress(@, self"),
    "state": (STATE, f"{STATE} | @"),
    "charged": ("return self.settings.event(rows_per_unit)", "return @"),
    "event of": (
        "return self.settings.event(rows_per_unit)",
        "return replace(self.settings, @).event(rows_per_unit)",
    ),
    "rows": ("rows = self.settings.rows_of(table, randomness)", "rows = @"),
}
TRAINING_BUGS = """
half the noise | moved | deviation <- 0.5
99% of the noise | moved | deviation <- 0.99
no clipping | moved | coefficient <- torch.ones_like(coefficient)
norm without bias | moved | coefficient <- NO BIAS
layers clipped apart | moved | clipped <- APART
momentum before the noise | moved | before noise <- MOMENTUM
weights of the whole table | moved | at step <- self.codes = codes && sums <- s * (self.codes[:, 0] == 0).sum() / max(1, len(self.codes))
gradients counted twice | moved | sums <- 2 * s
spacing of the gradients | spacing | before noise <- LARGE SPACING
noise of the gradients | sigma | before noise <- LARGE NOISE
a layer without noise | output | noisy <- BARE
n in the learning rate | output | learning rate <- 0.1 / (1 + len(codes))
mean over the actual batch | output | before noise <- self.optimizer.expected_batch_size = max(1, len(batch))
n in the weight decay | output | decay <- self.optimizer.param_groups[0]["weight_decay"] = 1 / (1 + len(codes))
n in the normaliser | output | settings <- N IN BATCH
n in the number of steps | calls | steps <- 1 + len(codes) // 8
n in the rate | rate | places <- self.randomness.poisson_batch(len(codes), rate=min(1.0, 8 / (1 + len(codes))))
early stopping | calls | stops <- len(codes) and codes[:, 0].mean() > 1.2
fixed-size shuffled batches | charged | places <- np.random.default_rng(step).permutation(len(codes))[:8]
the whole table, charged as sampled | charged | batch <- codes
one coin for two rows | coins | places <- TWO ROWS
the first batch again | charged | places <- self.first && at step <- AGAIN
batches cut to size | moved | own <- batch[:6], latents[:6], places[:6]
a higher rate than charged | charged | places <- self.randomness.poisson_batch(len(codes), rate=self.settings.rate * 1.5)
one latent for all | latents | latents <- MIXED
ticks by the rows | progress | tick <- done + len(codes)
fewer steps charged | charged | event of <- steps=self.settings.steps - 1
a lower rate charged | charged | event of <- rate=self.settings.rate / 2
more noise charged | moved | event of <- noise_multiplier=2 * self.settings.noise_multiplier
charged as if not sampled | charged | charged <- GAUSSIANS
event that forgets the unit's rows | moved | charged <- self.settings.event(1)
"""  # noqa: E501
SECRET_BUGS = """
by a coin for each row | coins | rows <- BY ROW
and all rare rows | coins | rows <- RARE ROWS
all rows, charged as one | charged | rows <- table.fit_codes
of each step | charged | step <- STEP SAMPLE
larger than charged | charged | event of <- sample=0.25
charged to nobody | charged | event of <- sample=1.0
its size in the learning rate | output | learning rate <- 0.1 / (1 + len(codes))
its size in the ticks | progress | tick <- done + len(codes)
"""
STEEP_BUGS = """
clipping after the sum | moved | coefficient <- 1 + 0 * coefficient && before noise <- AFTER
"""
POISONED_BUGS = """
not finite passes clipping | not finite | finite <- && spoilt <-
a second pass with new latents | latents | passes <- SECOND PASS
"""
KEPT_BUGS = """
sums in it | files | before noise <- self.exact = getattr(self, "exact", sums) && state <- {str(i): s for i, s in enumerate(self.exact.values())}
"""  # noqa: E501


# --- sums ---


def strata(*, split: bool = True) -> Build:
    """Both halves of the first column, whose positions are cut to a quarter of them."""

    def build(module: Any, domain: Domain) -> Any:
        column = domain.columns[0]
        low, high = number_ends(column)
        half = upper_half(domain, column.name)
        arms = tuple(Arm(((half, flag),)) if split else Arm() for flag in (True, False))
        number = Bounded(column.name, low, (3 * low + high) / 4)
        return module.StratumSums(domain, arms, (), number, 2.0)

    return build


def ranges(module: Any, domain: Domain) -> Any:
    """Two ranges of the first column."""
    name = domain.names[0]
    low, high = number_ends(domain[name])
    cuts = ((name, (low, (low + high) / 2)),)
    return module.StratumSums(domain, (Arm(),), (name,), None, 2.0, cuts)


def products(example: int) -> Build:
    """The clipped example of positions, or, as the fourth, that of a range."""

    def build(module: Any, domain: Domain) -> Any:
        right = product_sums(domain)[example]
        known = {f.name: getattr(right, f.name) for f in fields(right)}
        return module.ProductSums(**known | {"noise_multiplier": 2.0})

    return build


def contrast(module: Any, domain: Domain) -> Any:
    """Both halves of the first column, all of whose strata weigh alike, about the middle."""
    strata_of = contrasts(domain)[0].budget.strata
    shape = (2, math.prod(strata_of.shape[1:]))
    part = np.full(shape, 0.5)
    return module.ContrastBudget(strata_of, 2.0).choose(part, 0 * part, 0 * part)


U = "np.clip((clipped - self.number.middle) / self.number.half, -1.0, 1.0)"
KEPT = "stratum, u = stratum[inside], u[inside]"
EACH = "\n        each = "
TWICE = "np.concatenate([stratum, stratum + math.prod(self.shape[1:])]), np.tile(u, 2)"
DRAW = "randomness.rounded_gaussian(exact, sigma=self.sigma * GRID"
PRODUCTS = ") / GRID\n        return NoisyProducts("
CONTRAST_OF = ") / GRID\n        return NoisyContrast("
SUMS: Anchors = {
    "bound": ("clipped = np.clip(values, self.number.lower, self.number.upper)", "clipped = @"),
    "u": (f"return {U}", "return @"),
    "arms": (f"{KEPT}{EACH}", f"{KEPT}\n        stratum, u = {TWICE}{EACH}"),
    "arm": ("np.where(arm < 0, -1, arm * math.prod(self.shape[1:]) + cell)", "@"),
    "cut": ('np.searchsorted(cuts[name], own, "right") - 1', "@"),
    "norm": ("math.sqrt(2 + SQUARE**2)", "@"),
    "noise": (f"return self._value({DRAW}", f"return self._value({DRAW} * @"),
    "number bound": ("clipped = np.clip(values, bounds.lower, bounds.upper)", "clipped = @"),
    "number": ("return np.clip(scaled, -1.0, 1.0)", "return @"),
    "kinds": ("math.sqrt(len({_kind(product) for product in self.products}))", "@"),
    "level": ("np.bincount(near, weights=parts, minlength=len(asked))", "@"),
    "products' noise": (f"{DRAW}{PRODUCTS}", f"{DRAW} * @{PRODUCTS}"),
}
STRATA_BUGS = """
numbers that are not cut | moved | bound <- values && u <- (clipped - self.number.middle) / self.number.half
bounds from the rows | moved | u <- LARGEST
arms by the table's median | moved | arm <- MEDIAN
the sensitivity of counts | moved | norm <- 1.0
99% of the noise | moved | noise <- 0.99
noise that grows with the table | sigma | noise <- (1 + math.log1p(len(table.codes)))
"""  # noqa: E501
RANGES_BUGS = "ranges by the table's mean | moved | cut <- (own > np.nanmean(own)).astype(int)"
ARMS_BUGS = "a row in each arm | moved | arms <-"
CONTRAST: Anchors = {
    "sum": ("a * (u - m) / self.most[0]", "@"),
    "cut": ("np.clip(p, -1.0, 1.0)", "@"),
    "norm": ("math.sqrt(1 + 2 * SQUARE**2)", "@"),
    "most": ("a.max() ** 2])", "a.max() ** 2]) * @"),
    "noise": (f"{DRAW}{CONTRAST_OF}", f"{DRAW} * @{CONTRAST_OF}"),
}
CONTRAST_BUGS = """
weights of rows are not divided | moved | sum <- 4 * a * (u - m) && cut <- p
centres from the rows | moved | sum <- a * (u - u.max() if len(u) else u) / self.most[0]
half of the most that a row adds | moved | most <- 0.5 && cut <- p
the sensitivity of the sum alone | moved | norm <- 1.0
99% of the noise | moved | noise <- 0.99
noise that grows with the table | sigma | noise <- (1 + math.log1p(len(table.codes)))
"""
PRODUCTS_BUGS = """
numbers that are not cut | moved | number bound <- values && number <- scaled
the sensitivity of one sum | moved | kinds <- 1.0
a row in every level | moved | level <- np.rint(value * GRID).sum()
99% of the noise | moved | products' noise <- 0.99
noise that grows with the table | sigma | products' noise <- (1 + math.log1p(len(table.codes)))
"""
RANGE_BUGS = """
bounds from the rows | moved | number <- values / max(1e-9, np.abs(values).max(initial=0.0))
ranks for numbers | moved | number <- 2 * np.argsort(np.argsort(values)) / max(1, len(values) - 1) - 1
"""  # noqa: E501


# --- frequent texts, and screens of pairs ---


def texts(module: Any, domain: Domain) -> Any:
    columns = {c.name: "text" for c in domain.columns if not c.ranged}
    return module.TextBudget(1.5, 1e-4, 3).choose(columns)


def interactions(module: Any, domain: Domain) -> Any:
    """Two sums of many are charged."""
    signs = [
        module.Sign(c.name, tuple(i % 2 == 1 for i in range(c.levels))) for c in domain.columns
    ]
    families = [module.Family((0,), 1, len(signs)), module.Family((0, 1), 1, len(signs))]
    drawn = module.PackedSigns.of(np.zeros((3, len(signs)), np.uint16), domain, signs)
    return module.InteractionScreen(domain, 2, 4.0).choose(
        signs, families, drawn, rows=5.0, floor=0.0
    )


def screen(module: Any, domain: Domain) -> Any:
    """Two pairs of all are charged."""
    return module.PairScreen(domain, 2, 3.0).choose(tuple(combinations(domain.names, 2)))


def numbers(module: Any, domain: Domain) -> Any:
    return module.TextBudget(1.5, 1e-4, 3, "numbers").choose(
        dict.fromkeys(domain.numbers, "number")
    )


FREQUENT: Anchors = {
    "values": ("values = table.frame[name][~table.held_out]", "values = @"),
    "threshold": ("sigma=self.sigma, threshold=self.threshold)", "sigma=self.sigma, threshold=@)"),
    "sigma": ("(counts, sigma=self.sigma", "(counts, sigma=@"),
    "kept": (
        "kept = randomness.kept_counts(counts, sigma=self.sigma, threshold=self.threshold)",
        "kept = @",
    ),
    "key": ("counts[name, key] = count", "@"),
    "told": ("return self._value(kept)", "return @"),
}
TEXTS_BUGS = """
a threshold for one row | moved | threshold <- 9
noise for one column | moved | sigma <- self.budget.noise_multiplier
two keys of a text | moved | key <- KEYS
a threshold of the data | threshold | threshold <- self.threshold + len(table.fit_codes)
noise of the data | sigma | sigma <- self.sigma + len(counts)
counts of each column by themselves | charged | kept <- EACH
the number of keys | output | told <- ALL
"""
NUMBERS_BUGS = """
ranks for numbers | moved | values <- table.frame[name][~table.held_out].rank()
rows that count twice | moved | key <- counts[name, key] = 2 * count
a third of the noise | moved | sigma <- self.sigma / 3
noise of the data | sigma | sigma <- self.sigma + len(counts)
"""
SCREEN: Anchors = {
    "scores": ("scores -= np.array(self.by_chance, dtype=np.int64)", "@"),
    "scale": ("scale = self.budget.noise * MOVES", "scale = self.budget.noise * MOVES * @"),
    "count": ("count=kept)", "count=@)"),
    "beside": ("for i in chosen.tolist())", "for i in chosen.tolist()) + (@,)"),
    "packs": ("told = [[index(name) for name in pair] for pair in value]", "told = [[0, 0]]"),
}
SCREEN_BUGS = """
doubled scores | moved | scores <- scores *= 2
what a row changes taken off | moved | scores <- scores[0] -= 6 * int((table.fit_codes[:, 0] == 0).sum())
half the noise | charged | scale <- 0.5
99% of the noise | charged | scale <- 0.99
one pair more | charged | count <- kept + 1
pairs above zero | shape | count <- max(1, min(2, int((scores > 0).sum())))
which scores are zero | output | beside <- (scores == 0).tolist() && packs <-
"""  # noqa: E501
INTERACTION: Anchors = {
    "exact": ("self.signs).sums(self.families)", "self.signs).sums(self.families) @"),
    "expected": (
        "expected, noise = np.rint(self.rows * share)",
        "expected, noise = np.rint(@ * share)",
    ),
    "scores": ("np.abs(exact - expected)", "@"),
    "chosen": (
        "(best,) = randomness.noisy_top(scores, scale=noise, count=1).tolist()",
        "@",
    ),
    "told": (
        "(noisy,) = randomness.rounded_gaussian(exact[[best]], sigma=noise).tolist()",
        "@",
    ),
    "apart": ("apart = noisy - int(expected[best])", "apart = @"),
    "stop": ("if abs(apart) < self.floor:", "if @:"),
    "times": ("for _ in range(self.budget.kept):", "for _ in range(@):"),
    "bits": ("np.array(self.minus)[codes[:, domain.index(self.column)]]", "@"),
    "event": ("GaussianSumsDpEvent(self.noise / rows_per_unit, 2.0)", "@"),
}
INTERACTION_BUGS = """
doubled sums | moved | exact <- * 2
rows of the table in what is expected | moved | expected <- -20 * len(table.fit_codes)
scores of squares | moved | scores <- (exact - expected) ** 2
choices without noise | charged | chosen <- best = int(scores.argmax())
half the noise on choices | charged | chosen <- (best,) = randomness.noisy_top(scores, scale=noise / 2, count=1).tolist()
two places for one choice | charged | chosen <- best, _ = randomness.noisy_top(scores, scale=noise, count=2).tolist()
sums without noise | output | told <- noisy = int(exact[best])
99% of the noise on sums | moved | told <- (noisy,) = randomness.rounded_gaussian(exact[[best]], sigma=0.99 * noise).tolist()
noise of a sum that was drawn before | output | told <- noisy = told[0].noisy - int(exact[0]) + int(exact[best]) if told else randomness.rounded_gaussian(exact[[best]], sigma=noise).tolist()[0]
what is apart without noise | output | apart <- int(exact[best] - expected[best])
an end by the exact sum | calls | stop <- abs(int(exact[best] - expected[best])) < 9
one choice more | charged | times <- self.budget.kept + 1
signs by the table's median | moved | bits <- (c := codes[:, domain.index(self.column)]) > (np.median(c) if len(c) else 0)
a sum charged for one row of a unit | moved | event <- GaussianSumsDpEvent(self.noise, 2.0)
choices by the rows | calls | times <- max(1, min(self.budget.kept, len(table.fit_codes) % 3))
"""  # noqa: E501


# --- sparse vectors and noisy maxima, which no module of the kernel asks in so few lines ---


@dataclass(frozen=True)
class Sieve:
    """Asks of each level of the first column whether it has many rows; two passes, of half each."""

    domain: Domain
    again: bool = False  # goes on after an answer above
    threshold_moves: bool = False
    tells: bool = False  # returns the noisy answer
    weight: int = 1  # of a row
    threshold_scale: float = 4.0
    sampled: bool = True
    rate: float = 0.5

    name = "sieve"

    def event(self, rows_per_unit: int) -> Any:
        rate = self.rate if self.sampled else 1.0
        return dp_accounting.SelfComposedDpEvent(
            SparseVectorDpEvent(4.0, 8.0, 1, rate, rows_per_unit), 2
        )

    def run(self, table: Table, randomness: Randomness) -> list[Any]:
        replies: list[Any] = []
        for _ in range(2):
            codes = table.fit_codes
            if self.sampled:
                codes = codes[randomness.poisson_batch(len(codes), rate=0.5)]
            counts = self.weight * count_tables(codes, self.domain, [(self.domain.names[0],)])[0]
            bound = np.full(1, counts.sum() if self.threshold_moves else 5)
            (threshold,) = randomness.discrete_laplace(bound, scale=self.threshold_scale)
            for count in counts:
                (noisy,) = randomness.discrete_laplace(np.full(1, count), scale=8.0)
                replies.append(int(noisy) if self.tells else bool(noisy >= threshold))
                if noisy >= threshold and not self.again:
                    break
        return replies

    def pack(self, value: Any) -> Any:
        return {"replies": np.array(value)}


@dataclass(frozen=True)
class Selection:
    """The commonest level of the first column, twice."""

    domain: Domain
    weight: int = 1
    scale: float = 6.0
    draws: int = 2
    occurring: bool = False

    name = "selection"

    def event(self, rows_per_unit: int) -> Any:
        return dp_accounting.SelfComposedDpEvent(GumbelMaxDpEvent(6.0, 1, rows_per_unit), 2)

    def run(self, table: Table, randomness: Randomness) -> list[int]:
        counts = count_tables(table.fit_codes, self.domain, [(self.domain.names[0],)])[0]
        if self.occurring:
            counts = counts[: int(np.flatnonzero(counts).max(initial=0)) + 1]
        return [
            randomness.noisy_max(self.weight * counts, scale=self.scale) for _ in range(self.draws)
        ]

    def pack(self, value: Any) -> Any:
        return {"chosen": np.array(value)}


def searches() -> Iterator[tuple[str, Bug]]:
    for name, kind, changes, differs in (
        ("right sieve on samples", Sieve, {}, None),
        ("right sieve on all rows", Sieve, {"sampled": False}, None),
        ("right selection", Selection, {}, None),
        ("selection that ends early", Selection, {"draws": 1}, None),
        ("sieve that goes on after an answer above", Sieve, {"again": True}, "charged"),
        ("sieve whose threshold moves", Sieve, {"threshold_moves": True}, "moved"),
        ("sieve that tells noisy answers", Sieve, {"tells": True}, "output"),
        ("sieve of doubled counts", Sieve, {"weight": 2}, "moved"),
        ("sieve with half the noise on its threshold", Sieve, {"threshold_scale": 2.0}, "charged"),
        ("sieve on larger samples than charged", Sieve, {"rate": 0.4}, "charged"),
        ("selection by doubled counts", Selection, {"weight": 2}, "moved"),
        ("selection with half the noise", Selection, {"scale": 3.0}, "charged"),
        ("selection drawn more often", Selection, {"draws": 3}, "charged"),
        ("selection among levels that occur", Selection, {"occurring": True}, "shape"),
    ):

        def build(module: Any, domain: Domain, kind: Any = kind, own: Any = changes) -> Any:
            return kind(domain, **own)

        yield f"search: a {name}", Bug(None, build, {}, differs)


def trainings(title: str, build: Build, table: str) -> dict[str, Bug]:
    return bugs(title, "dpsgd.training", build, DPSGD, table)


def sums(title: str, build: Build, table: str) -> dict[str, Bug]:
    return bugs(title, "mechanisms.sums", build, SUMS, table)


BUGS: dict[str, Bug] = {
    **bugs("tables", "mechanisms.marginals", planned, PLANNED, PLANNED_BUGS),
    **bugs("chosen tables", "mechanisms.marginals", chosen, CHOSEN, CHOSEN_BUGS),
    **trainings("training", trains(), TRAINING_BUGS),
    **trainings("training of a secret sample", trains(sample=0.5), SECRET_BUGS),
    **trainings("training on norms that differ", trains(partial(SmallModel, scale=50)), STEEP_BUGS),
    **trainings("training on rows without a finite loss", trains(poisoned), POISONED_BUGS),
    **trainings("training with a checkpoint", trains(kept=Kept()), KEPT_BUGS),
    "training: examples mixed in a batch": Bug("dpsgd.training", trains(BatchMixes), {}, "moved"),
    **sums("strata", strata(), STRATA_BUGS),
    **sums("strata of arms that overlap", strata(split=False), ARMS_BUGS),
    **sums("strata of ranges", ranges, RANGES_BUGS),
    **bugs("contrast", "mechanisms.sums", contrast, CONTRAST, CONTRAST_BUGS),
    **sums("products", products(1), PRODUCTS_BUGS),
    **sums("products of a range", products(4), RANGE_BUGS),
    **bugs("texts", "mechanisms.frequent_texts", texts, FREQUENT, TEXTS_BUGS),
    **bugs("numbers", "mechanisms.frequent_texts", numbers, FREQUENT, NUMBERS_BUGS),
    **bugs(
        "interactions", "mechanisms.interaction_screen", interactions, INTERACTION, INTERACTION_BUGS
    ),
    **bugs("screen", "mechanisms.pair_screen", screen, SCREEN, SCREEN_BUGS),
    **dict(searches()),
}  # fmt: skip
