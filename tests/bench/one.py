"""One benchmark in a process of its own: Django set up, the database migrated, then `main()` of the module named, with what follows its name."""

from __future__ import annotations

import importlib
import os
import sys

import django
from django.core.management import call_command

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "transcriber.settings")
django.setup()
call_command("migrate", verbosity=0)
name, *arguments = sys.argv[1].split(":")
importlib.import_module(f"tests.bench.{name}").main(*arguments)
