from __future__ import annotations

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from tests.factories import make_user


@pytest.fixture
def operator() -> User:
    return make_user("olga", is_staff=True, is_superuser=True)


@pytest.fixture
def browser(operator: User) -> Client:
    """Signed in as the operator."""
    client = Client()
    client.force_login(operator)
    return client


@pytest.fixture
def viewer() -> Client:
    """Signed in as staff that may look at records and nothing else."""
    user = make_user("victor", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_audiorecord"))
    client = Client()
    client.force_login(user)
    return client
