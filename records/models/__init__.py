from records.models.audio_record import AudioRecord
from records.models.file import File
from records.models.intake_key import IntakeKey
from records.models.journal_quarter import JournalQuarter
from records.models.record_event import RecordEvent
from records.models.seated_worker import SeatedWorker
from records.models.structure import Structure
from records.models.tally import Tally, TallyMark
from records.models.text import Text, TextKind

__all__ = [
    "AudioRecord",
    "File",
    "IntakeKey",
    "JournalQuarter",
    "RecordEvent",
    "SeatedWorker",
    "Structure",
    "Tally",
    "TallyMark",
    "Text",
    "TextKind",
]
