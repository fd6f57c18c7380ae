"""The operator's side of a record: what stands and why, and the acts that put it right."""

from records.admin.record import AudioRecordAdmin

__all__ = ["AudioRecordAdmin"]
