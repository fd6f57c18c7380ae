"""Stored files as answers of the API: a type and a name of our own choosing, and refusals in its shape."""

from __future__ import annotations

import logging
import re

from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _
from rest_framework import status

from records.api.errors import Refusal, away
from records.models import File
from records.operations.intake import StorageAway, clean_title
from records.storage import serving

logger = logging.getLogger(__name__)


def serve(request: HttpRequest, file: File, *, title: str) -> HttpResponseBase:
    """The file, or the range of it that is asked for. Raises Refusal (416, 404 where its bytes are gone, 503 where the storage is away)."""
    content_type, extension = serving.TYPES.get(file.format, ("application/octet-stream", "bin"))
    name = re.sub(r"[/\\]", "_", clean_title(title)) or "recording"
    try:
        return serving.serve(request, file, name=f"{name}.{extension}", content_type=content_type)
    except serving.NoSuchRange as beyond:
        raise Refusal(
            status.HTTP_416_REQUESTED_RANGE_NOT_SATISFIABLE,
            "range_not_satisfiable",
            _("The file has no such range."),
            headers={"Content-Range": f"bytes */{beyond.size}"},
        ) from None
    except FileNotFoundError:
        raise Refusal(status.HTTP_404_NOT_FOUND, "file_missing", _("This file is not in the storage.")) from None
    except OSError as error:
        logger.error("a file could not be read: %s", error.strerror or type(error).__name__)
        raise away(StorageAway.code, str(StorageAway.sentence)) from None
