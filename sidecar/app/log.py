"""Configures the log of a replica or worker, which writes one line for each record to stderr."""

import logging
import sys
from types import TracebackType

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import Processor

from sidecar.kit.trace_context import add_trace_id


def start_logging(level: str, log_format: str) -> None:
    """Configure the log by the settings log_level and log_format. Messages of libraries below the
    level `warning` are never logged."""
    shared_processors: list[Processor] = [
        add_trace_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    renderer: Processor = structlog.processors.JSONRenderer()
    if log_format != "json":
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    min_level = getattr(logging, level.upper())
    structlog.configure(
        processors=[*shared_processors, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(min_level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared_processors],
            processors=[ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=max(min_level, logging.WARNING), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_crash


def _log_crash(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, Exception):  # Ctrl-C
        sys.__excepthook__(kind, error, traceback)
        return
    structlog.get_logger().critical("crashed", exc_info=(kind, error, traceback))
