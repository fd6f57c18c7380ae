"""The admin as a whole: its name, and the look of what other people's apps bring along."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from django import forms
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, Permission, User
from django.db.models import ManyToManyField, Q, QuerySet
from django.http import HttpRequest
from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from django_q.admin import FailAdmin, Failure, OrmQ, Schedule, ScheduleAdmin, Success
from knox.admin import AuthTokenAdmin
from knox.models import AuthToken
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

admin.site.index_title = _("Home")

# django-q2's table of background tasks. Recordings never pass through it, so it would only mislead; its failures and schedules stay.
admin.site.unregister([OrmQ, Success, Failure, Schedule, User, Group, AuthToken])


# Apps that have names in English alone, or none.
for _label, _called in {"knox": pgettext_lazy("app", "API tokens"), "axes": _("Sign-in"), "django_q": _("Background tasks")}.items():
    apps.get_app_config(_label).verbose_name = _called


class Rights(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]  # no generic at run time
    """Rights in the viewer's language (Django keeps their names in English), and those alone that the console asks for."""

    widget = UnfoldAdminCheckboxSelectMultipleWidget
    ACTS = {
        "view": pgettext_lazy("right", "view"),
        "add": pgettext_lazy("right", "add"),
        "change": pgettext_lazy("right", "change"),
        "delete": pgettext_lazy("right", "delete"),
    }

    def __init__(self, *, queryset: QuerySet[Permission], **more: Any) -> None:
        shown = [
            {"content_type__app_label": model._meta.app_label, "content_type__model": model._meta.model_name}
            for model in admin.site._registry
        ]
        kinds = reduce(or_, (Q(**model) for model in shown))
        super().__init__(queryset=queryset.filter(kinds).select_related("content_type"), **more)

    def label_from_instance(self, right: Permission) -> str:
        model = right.content_type.model_class()
        act = right.codename.partition("_")[0]
        name = capfirst(str(model._meta.verbose_name_plural)) if model else right.content_type.name
        return f"{name}: {self.ACTS.get(act, right.name)}"


class GivesRights:
    filter_horizontal: Any = ()

    def formfield_for_manytomany(self, db_field: ManyToManyField[Any, Any], request: HttpRequest, **more: Any) -> Any:
        if db_field.related_model is Permission:
            return db_field.formfield(form_class=Rights, help_text="")
        return super().formfield_for_manytomany(db_field, request, **more)  # type: ignore[misc]  # comes before an admin


@admin.register(User)
class UserAdmin(GivesRights, DjangoUserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]  # unfold, knox and django-q2 ship no types
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupAdmin(GivesRights, DjangoGroupAdmin, ModelAdmin):  # type: ignore[misc]  # unfold, knox and django-q2 ship no types
    pass


# knox has names for its table in English alone. Ours are what people read; migrations keep what the classes say.
AuthToken._meta.verbose_name, AuthToken._meta.verbose_name_plural = _("API token"), pgettext_lazy("model", "API tokens")
for _field, _called in {
    "digest": _("digest"),
    "token_key": _("begins with"),
    "user": _("user"),
    "created": _("made"),
    "expiry": _("ends"),
}.items():
    AuthToken._meta.get_field(_field).verbose_name = _called
AuthToken.__str__ = lambda token: f"{token.user}, {token.token_key}…"  # 128 digits of a digest fit nowhere


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
