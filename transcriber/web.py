"""gunicorn's settings. `manage.py serve` uses them; by hand: `gunicorn -c python:transcriber.web transcriber.wsgi`."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from transcriber import processes

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "transcriber.settings")

from django.conf import settings

bind = f"{settings.TRANSCRIBER.web.listen}:{os.environ.get('PORT') or '8000'}"
worker_class = "transcriber.answering.Worker"  # threads
limit_request_line = 8190  # gunicorn's most; 4094 is too little for a long search in another script
workers = 1
threads = settings.TRANSCRIBER.web.threads
# Of the worker's sign of life, not of a request: with threads an upload may take hours.
timeout = 60
graceful_timeout = 5
# The sign of life is a file that is touched every second; on a disk that can block.
worker_tmp_dir = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - gunicorn makes a nameless file
control_socket_disable = True
accesslog = None
loglevel = "warning"


def on_starting(server: Any) -> None:
    processes.forks_die_with_us()


def post_worker_init(worker: Any) -> None:
    from transcriber import watch

    watch.begin(watch.remember)
    logging.getLogger(__name__).info("serving")
