"""`/healthz`: this process serves. `/readyz`: the service as a whole can do its work."""

from __future__ import annotations

import logging
import os
import shutil
from pathlib import Path

from django.conf import settings
from django.core.files.storage import default_storage
from django.db import connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone

from records.models import SeatedWorker
from transcriber import database

logger = logging.getLogger(__name__)

SPACE_NEEDED = 2**29
"""Bytes that must be free where recordings are kept: less, and the next large upload may fail."""


def healthz(request: HttpRequest) -> HttpResponse:
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> JsonResponse:
    """200 and `{"ready": true, "problems": {}}`, or 503 and what is wrong, by its part: `database`, `storage`, `workers`."""
    problems = {"database": _database(), "storage": _storage()}
    problems["workers"] = "" if problems["database"] else _workers()
    problems = {part: problem for part, problem in problems.items() if problem}
    return JsonResponse({"ready": not problems, "problems": problems}, status=503 if problems else 200)


def _database() -> str:
    try:
        database.look()
    except Exception as error:
        connection.close()
        brief = database.explain(error).brief
        logger.error("not ready: %s", brief[0].lower() + brief[1:])
        return brief
    return ""


def _storage() -> str:
    """A disk is asked for its space, an object storage whether it answers: one small request, of an object that need not be there."""
    try:
        try:
            folder = Path(default_storage.path(""))
        except NotImplementedError:
            default_storage.exists("readyz")
            return ""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            return "The folder of recordings can't be written to."
        free = shutil.disk_usage(folder).free
    except Exception as error:
        return _said("The storage does not answer", error)
    return "" if free >= SPACE_NEEDED else f"The disk is full: {free // 2**20} MiB are left for recordings."


def _workers() -> str:
    """Nothing is wrong where the configuration wants none, as during a deployment."""
    if not settings.TRANSCRIBER.pipeline.workers or SeatedWorker.objects.alive(now=timezone.now()).exists():
        return ""
    return "No worker has given a sign of life for a minute."


def _said(problem: str, error: Exception) -> str:
    logger.error("not ready: %s (%s)", problem[0].lower() + problem[1:], type(error).__name__)
    return f"{problem} ({type(error).__name__})."
