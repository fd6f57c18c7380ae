from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from transcriber.cluster import Patience
from transcriber.seats import Counter

ROOT = Path(__file__).resolve().parent.parent.parent


def test_patience_ends_with_a_counter_that_stands_still() -> None:
    counter = Counter()
    patience = Patience(3, counter)

    assert [patience.is_over() for _ in range(5)] == [False, False, False, True, True]
    counter.count()
    assert [patience.is_over() for _ in range(5)] == [False, False, False, False, True]


def test_the_main_process_loads_no_model_before_it_forks() -> None:
    program = """
import sys, django
django.setup()
import transcriber.cluster
print([name for name in ("faster_whisper", "ctranslate2", "onnxruntime", "av", "torch") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={"DJANGO_SETTINGS_MODULE": "transcriber.settings", **_environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "[]\n", done.stderr


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)
