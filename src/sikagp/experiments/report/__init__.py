"""The report: the paper's tables and figures with our numbers beside the paper's."""

from sikagp.experiments.report.rendering import write_report

__all__ = ["write_report"]
