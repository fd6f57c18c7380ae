"""The admin as a whole: its name, and the look of what other people's apps bring along."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _
from django_q.admin import FailAdmin, Failure, OrmQ, Schedule, ScheduleAdmin, Success
from knox.admin import AuthTokenAdmin
from knox.models import AuthToken
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

admin.site.index_title = _("Home")

# django-q2's table of background tasks. Recordings never pass through it, so it would only mislead; its failures and schedules stay.
admin.site.unregister([OrmQ, Success, Failure, Schedule, User, Group, AuthToken])


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]  # unfold, knox and django-q2 ship no types
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]  # unfold, knox and django-q2 ship no types
    pass


# knox has names for its table in English alone. Ours are what people read; migrations keep what the classes say.
AuthToken._meta.verbose_name, AuthToken._meta.verbose_name_plural = _("API token"), _("API tokens")
for _field, _called in {
    "digest": _("digest"),
    "token_key": _("begins with"),
    "user": _("user"),
    "created": _("made"),
    "expiry": _("ends"),
}.items():
    AuthToken._meta.get_field(_field).verbose_name = _called


@admin.register(AuthToken)
class TokenAdmin(AuthTokenAdmin, ModelAdmin):  # type: ignore[misc]  # unfold, knox and django-q2 ship no types
    list_display = ("user", "token_key", "created", "expiry")

    def save_model(self, request: HttpRequest, obj: AuthToken, form: Any, change: bool) -> None:
        if not change:
            self.message_user(request, gettext("The token is %(token)s: copy it now, it is shown this once.") % {"token": form.token})
        ModelAdmin.save_model(self, request, obj, form, change)


@admin.register(Failure)
class FailureAdmin(FailAdmin, ModelAdmin):  # type: ignore[misc]  # unfold, knox and django-q2 ship no types
    pass


@admin.register(Schedule)
class SchedulesAdmin(ScheduleAdmin, ModelAdmin):  # type: ignore[misc]  # unfold, knox and django-q2 ship no types
    pass
