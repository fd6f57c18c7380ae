"""The work of each stage. Steps return outcomes; they never touch a queue column."""

from records.pipeline.steps.finish import finish
from records.pipeline.steps.normalize import normalize
from records.pipeline.steps.poll import poll
from records.pipeline.steps.submit import submit

__all__ = ["finish", "normalize", "poll", "submit"]
