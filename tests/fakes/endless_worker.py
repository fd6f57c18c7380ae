"""A worker in a process of its own, until it is killed."""

from __future__ import annotations

import time

import django


def main() -> None:
    django.setup()
    from records.pipeline.dispatch import Worker

    worker = Worker()
    while True:
        if not worker.work_once():
            time.sleep(0.05)


if __name__ == "__main__":
    main()
