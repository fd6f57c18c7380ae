from __future__ import annotations

import uuid
from datetime import timedelta

import pytest

from records.models import AudioRecord
from records.operations.edit import edit
from tests.factories import make_record

pytestmark = pytest.mark.django_db


def test_an_edit_writes_title_and_brief_alone(clock):
    held = {"acquisition_id": uuid.uuid4(), "acquire_expires_at": clock.now + timedelta(minutes=1)}
    record = make_record(now=clock.now, **held)
    before = AudioRecord.objects.values().get()
    later = clock.step(minutes=5)

    assert edit(AudioRecord.objects.filter(pk=record.pk), title=" New \x07title\u2028 ", brief="Brief", now=later) == 1

    assert AudioRecord.objects.values().get() == before | {"title": "New title", "brief": "Brief", "updated": later}


def test_what_is_not_given_stays(now):
    make_record(now=now, title="Title", brief="Brief")

    edit(AudioRecord.objects.all(), title="Other", now=now)
    assert AudioRecord.objects.get().brief == "Brief"
    edit(AudioRecord.objects.all(), brief="", now=now)
    assert (AudioRecord.objects.get().title, AudioRecord.objects.get().brief) == ("Other", "")


def test_nothing_to_edit(now):
    assert edit(AudioRecord.objects.none(), title="x", now=now) == 0
