"""What benchmarks share."""

from __future__ import annotations

import statistics


def spread(seconds: list[float]) -> str:
    """Median and 99th percentile in milliseconds."""
    ordered = sorted(seconds)
    return f"p50 {statistics.median(ordered) * 1000:.2f} ms, p99 {ordered[int(len(ordered) * 0.99) - 1] * 1000:.2f} ms"
