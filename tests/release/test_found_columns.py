"""What is read off noisy counts of cells: types, bounds, codes, missing values, what is lost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from synthdp.data import FORMS, SIZES, form_of, size_of
from synthdp.privacy import READINGS, NoisyTexts
from synthdp.privacy.mechanisms.marginals import NoisyTable
from synthdp.release import Reader, columns_to_read, found_columns
from synthdp.spec import FoundColumn
from synthdp.spec.model import Column

SIGMA = 20.0


def counted(
    columns: dict[str, Sequence[str]],
    *,
    seed: int = 0,
    sigma: float = SIGMA,
    rows: int | None = None,
) -> Reader:
    """Cells of these texts with noise that follows `seed`."""
    rng, forms, sizes = np.random.default_rng(seed), [], []
    for name, texts in columns.items():
        for tables, place, cells, noise in (
            (forms, form_of, len(FORMS), 2 * sigma),
            (sizes, size_of, len(SIZES), sigma),
        ):
            once = {text: place(text) for text in set(texts)}
            exact = np.bincount([once[text] for text in texts], minlength=cells)
            noisy = np.rint(exact + noise * rng.standard_normal(cells))
            tables.append(NoisyTable((name,), noisy, noise))
    return Reader(tuple(columns), tuple(forms), tuple(sizes), rows)


def one(texts: Sequence[str], told: dict[str, int] | None = None, **options: Any) -> FoundColumn:
    reader = counted({"x": texts}, **options)
    texts_told = NoisyTexts({"x": told or {}}, SIGMA, 100)
    (found,) = found_columns(reader, texts_told)
    TypeAdapter[Any](Column).validate_python(dict(found.entry))
    return found


def spread(low: float, high: float, rows: int = 20_000, *, form: str = "{:.0f}") -> list[str]:
    return [form.format(value) for value in np.linspace(low, high, rows)]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (spread(17, 90), {"type": "integer", "lower": 17, "upper": 90}),
        (spread(-40, 60), {"type": "integer", "lower": -40, "upper": 60}),
        (spread(1950, 2020), {"type": "integer", "lower": 1950, "upper": 2020}),
        (spread(0, 9), {"type": "integer", "lower": 0, "upper": 9}),
        (
            spread(0.25, 4.1, form="{:.2f}"),
            {"type": "number", "lower": 0.25, "upper": 4.5, "decimals": 2},
        ),
        (
            [f"{y}-05-17" for y in range(1990, 2011)] * 1000,
            {
                "type": "datetime",
                "lower": "1990-01-01",
                "upper": "2010-12-31",
                "resolution": "day",
            },
        ),
        (
            [f"{y}-05-17T10:30" for y in range(1990, 2011)] * 1000,
            {
                "type": "datetime",
                "lower": "1990-01-01",
                "upper": "2010-12-31T23:59:59",
                "resolution": "minute",
            },
        ),
        (["0", "1"] * 5000, {"type": "categorical", "categories": ["other", "0", "1"]}),
        (["1", "2", "9"] * 5000, {"type": "categorical", "categories": ["other", "1", "2", "9"]}),
        (["1.0", "0.0"] * 5000, {"type": "integer", "lower": 0, "upper": 1}),
        (["5"] * 5000, {"type": "categorical", "categories": ["other", "5"]}),
        (["0.0"] * 5000, {"type": "integer", "lower": 0, "upper": 1}),
    ],
)
def test_types_and_bounds(texts: list[str], expected: dict[str, Any]) -> None:
    found = one(texts)
    assert dict(found.entry) == expected
    assert found.lost < 0.02 + 3 * found.error


def test_bounds_are_never_far_off_for_any_noise_that_is_likely() -> None:
    """Fifty draws: no bound beyond the next round numbers, and few rows outside."""
    texts = [f"{value:.1f}" for value in 50 + 12 * np.random.default_rng(0).standard_normal(20_000)]
    numbers = np.array(texts, dtype=float)
    for seed in range(50):
        entry = one(texts, seed=seed).entry
        assert -20 <= entry["lower"] <= 30 and 70 <= entry["upper"] <= 130
        assert np.mean((numbers < entry["lower"]) | (numbers > entry["upper"])) < 0.02


def test_nothing_is_found_where_there_is_nothing() -> None:
    """All is missing: of a hundred columns of noise none has a type (1% by `FALSE_FINDS`)."""
    reader = counted({str(i): [""] * 1000 for i in range(100)})
    found = found_columns(reader, None)
    assert {column.found for column in found} == {"no text that enough rows have"}
    assert all(column.entry["missing"] for column in found)
    assert columns_to_read(reader) == {}


def test_missing_words_are_found_and_declared() -> None:
    reader = counted({"a": ["NA"] * 2000 + ["4", "5"] * 4000, "b": ["x", "y"] * 5000})
    assert reader.missing_words == ("", "NA")
    first, second = found_columns(reader, NoisyTexts({"b": {"x": 5010, "y": 4980}}, SIGMA, 100))
    assert first.entry == {
        "type": "categorical",
        "categories": ["other", "4", "5"],
        "missing": True,
    }
    assert second.entry == {"type": "categorical", "categories": ["other", "x", "y"]}


def test_leading_zeros_and_mixed_texts_are_no_numbers() -> None:
    zips = [f"{code:05d}" for code in range(500, 20_500)]
    assert columns_to_read(counted({"x": zips})) == {"x": "text"}
    assert one(["a", "1"] * 4000 + ["b"] * 4000, {"a": 4000, "1": 4000, "b": 4000}).entry == {
        "type": "categorical",
        "categories": ["other", "1", "a", "b"],
    }


def test_very_common_numbers_of_a_wide_range_are_spikes() -> None:
    texts = [*spread(0, 90_000, 8000), *["0"] * 8000, *["99999"] * 4000]
    assert columns_to_read(counted({"x": texts})) == {"x": "whole"}
    commas = replace(counted({"x": texts}), commas=True)
    assert columns_to_read(commas) == {"x": "whole with commas"}
    read = READINGS["whole with commas"]
    assert [read(text) for text in ("1200,0", "1.200", "1200,5", "12")] == [
        "1200",
        None,
        None,
        "12",
    ]
    found = one(texts, {"99999": 4000, "0": 8000, "100": 110})
    assert found.entry == {
        "type": "integer",
        "lower": 0,
        "upper": 100_000,
        "spikes": [0, 99_999],
    }
    decimals = [*spread(-2, 2, 9000, form="{:.3f}"), *["0"] * 3000]
    assert one(decimals).entry["spikes"] == [0.0]


def test_what_was_not_told_is_other_and_counted_as_lost() -> None:
    texts = ["a"] * 6000 + ["b"] * 3000 + [f"rare {i}" for i in range(1000)]
    found = one(texts, {"a": 6010, "b": 2990})
    assert found.entry["categories"] == ["other", "a", "b"]
    assert abs(found.lost - 0.1) < 3 * found.error + 0.01
    assert one(texts, {"other": 50, "a": 6000}).entry["categories"] == ["other", "a"]
    public = one(texts, {"a": 6000, "b": 3000}, rows=10_000)
    assert public.lost == pytest.approx(0.1, abs=0.03) and public.error < found.error


def test_texts_that_look_alike_are_one_category() -> None:
    found = one(["é"] * 4000, {"é": 3000, "e\u0301": 900})
    assert found.entry["categories"] == ["other", "é"]
