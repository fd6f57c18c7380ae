"""The words of the queue. Imports nothing of ours."""

from django.db.models import TextChoices


class State(TextChoices):
    """What has been reached. Which step comes next is said by the stage table alone."""

    UPLOADED = "uploaded"
    NORMALIZED = "normalized"
    SUBMITTED = "submitted"
    TRANSCRIBED = "transcribed"
    DONE = "done"


FINAL = State.DONE


class HaltReason(TextChoices):
    """Why a record stands still."""

    REJECTED = "rejected"  # we judged it: not audio, too long, refused by the provider
    EXHAUSTED = "exhausted"  # we stopped trying
    STUCK = "stuck"  # too long in one state
    UNCONFIRMED = "unconfirmed"  # a paid submission whose outcome nobody knows
    STOPPED = "stopped"  # a person did it


class Origin(TextChoices):
    """Where an act comes from."""

    WORKER = "worker"
    ADMIN = "admin"
    API = "api"
    TELEGRAM = "telegram"
    COMMAND = "command"


class EventOutcome(TextChoices):
    """What a row of the journal tells."""

    ADVANCED = "advanced"  # a change of state by a step
    FAILED = "failed"  # a failed try, or a lease that was taken over
    HALTED = "halted"
    RESUMED = "resumed"
    RESTARTED = "restarted"
    REBUILT = "rebuilt"  # text and structure made anew from the saved answer
