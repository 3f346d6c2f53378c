"""The colours and fonts of every picture: reports, files of a bundle, and benchmarks.

Reports have the same names in their style sheet, with lighter ones for the dark. All are told apart
by readers who are colour-blind (after M. Okabe and K. Ito, "Color Universal Design", 2008),
darkened for contrast.
"""

from __future__ import annotations

INK, FAINT, HOT, COOL = "#111111", "#7A7A7A", "#C23B00", "#0072B2"  # files of a bundle
REAL, SYNTHETIC, BOUND = "#b85c00", "#0b66b8", "#8e2a7c"  # rows in reports, and what is proved
GREEN, SKY, OCHRE, GREY, LINE = "#00795A", "#56B4E9", "#A07800", "#57606a", "#c9ced5"
SERIES = (SYNTHETIC, GREEN, BOUND, OCHRE, SKY, GREY, REAL)  # things without a colour of their own
FONTS = ("Segoe UI", "Liberation Sans", "Arial", "DejaVu Sans", "sans-serif")
