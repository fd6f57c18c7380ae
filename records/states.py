"""The words of the queue, and what they are called among people. Imports nothing of ours."""

from django.db.models import TextChoices
from django.utils.translation import pgettext_lazy


class State(TextChoices):
    """What has been reached. Which step comes next is said by the stage table alone."""

    UPLOADED = "uploaded", pgettext_lazy("state", "Uploaded")
    NORMALIZED = "normalized", pgettext_lazy("state", "Normalized")
    SUBMITTED = "submitted", pgettext_lazy("state", "Submitted")
    TRANSCRIBED = "transcribed", pgettext_lazy("state", "Transcribed")
    DONE = "done", pgettext_lazy("state", "Done")


FINAL = State.DONE


class HaltReason(TextChoices):
    """Why a record stands still."""

    REJECTED = "rejected", pgettext_lazy("halt reason", "Rejected")  # we judged it: not audio, too long, refused by the provider
    EXHAUSTED = "exhausted", pgettext_lazy("halt reason", "Exhausted")  # we stopped trying
    STUCK = "stuck", pgettext_lazy("halt reason", "Stuck")  # too long in one state
    UNCONFIRMED = "unconfirmed", pgettext_lazy("halt reason", "Unconfirmed")  # a paid submission whose outcome nobody knows
    STOPPED = "stopped", pgettext_lazy("halt reason", "Stopped")  # a person did it


class Origin(TextChoices):
    """Where an act comes from."""

    WORKER = "worker", pgettext_lazy("origin", "Worker")
    ADMIN = "admin", pgettext_lazy("origin", "Admin")
    API = "api", pgettext_lazy("origin", "API")
    TELEGRAM = "telegram", pgettext_lazy("origin", "Telegram")
    COMMAND = "command", pgettext_lazy("origin", "Command")


class EventOutcome(TextChoices):
    """What a row of the journal tells."""

    ADVANCED = "advanced", pgettext_lazy("journal", "Advanced")  # a change of state by a step
    FAILED = "failed", pgettext_lazy("journal", "Failed")  # a failed try, or a lease that was taken over
    HALTED = "halted", pgettext_lazy("journal", "Halted")
    RESUMED = "resumed", pgettext_lazy("journal", "Resumed")
    RESTARTED = "restarted", pgettext_lazy("journal", "Restarted")
    REBUILT = "rebuilt", pgettext_lazy("journal", "Rebuilt")  # text and structure made anew from the saved answer
