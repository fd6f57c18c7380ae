"""Where a record's files lie: a folder on a disk (`local`), or a bucket that many machines share (`objects`)."""

from records.storage.local import INCOMING, DurableFileSystemStorage, TakesParts

__all__ = ["INCOMING", "DurableFileSystemStorage", "TakesParts"]
