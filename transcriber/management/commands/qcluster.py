from __future__ import annotations

import os
from typing import Any

from django_q.management.commands.qcluster import Command as DjangoQCommand

from transcriber import processes


class Command(DjangoQCommand):  # type: ignore[misc]
    """Takes the place of django-q2's command: the same name and options, processes of ours."""

    help = "Works on recordings: starts the workers and looks after them. Exit status 75: start it again."

    def handle(self, *args: Any, **options: Any) -> None:
        if options.get("cluster_name"):
            os.environ["Q_CLUSTER_NAME"] = options["cluster_name"]
        from transcriber.cluster import Main  # makes what the processes share

        main = Main(is_over=nothing_is_due) if options.get("run_once") else Main()
        processes.leave(main.run())


def nothing_is_due() -> bool:
    """Whether all that could be worked on has been."""
    from django.db.models import Q
    from django.utils import timezone

    from records.models import AudioRecord

    at_work_or_due = Q(acquisition_id__isnull=False) | Q(delay_time__lte=timezone.now())
    return not AudioRecord.objects.unfinished().filter(halted_at__isnull=True).filter(at_work_or_due).exists()
