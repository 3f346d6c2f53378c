"""The steward's internal report: `content` says what it holds, `page` writes it, `figures` draws."""

from synthdp.report.content import Budget, BudgetStep, GateResult, GraphView, ReportContent
from synthdp.report.page import render, write_internal_report

__all__ = ["Budget", "BudgetStep", "GateResult", "GraphView", "ReportContent", "render", "write_internal_report"]
