from __future__ import annotations

import io

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_no_migration_is_missing() -> None:
    told = io.StringIO()
    try:
        call_command("makemigrations", check=True, dry_run=True, stdout=told)
    except SystemExit:
        pytest.fail(f"run manage.py makemigrations: {told.getvalue()}")
