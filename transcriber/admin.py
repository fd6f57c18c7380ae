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
from django.db.models import ForeignKey, ManyToManyField, Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _
from django_q.admin import FailAdmin, Failure, OrmQ, Schedule, Success
from knox.admin import AuthTokenAdmin
from knox.models import AuthToken
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

admin.site.index_title = _("Home")

# django-q2's tables of background tasks. Recordings never pass through them, so they would only mislead, and a schedule runs whatever
# function is typed in; the failures stay.
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
    COUNTED = 10_000

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> tuple[Any, Any, Any, Any]:
        """Whoever owns records stays, and not each of a million records is read to say so."""
        protected = []
        for user in objs:
            number = user.audio_records.order_by().values("pk")[: self.COUNTED + 1].count()
            if number:
                told = f"{self.COUNTED}+" if number > self.COUNTED else str(number)
                text = ngettext(
                    "%(user)s owns %(number)s record: remove it first", "%(user)s owns %(number)s records: remove them first", number
                )
                link = f"{reverse('admin:records_audiorecord_changelist')}?owner={user.pk}"
                protected.append(format_html('<a href="{}">{}</a>', link, text % {"user": user, "number": told}))
        if protected:
            return [str(user) for user in objs], {self.opts.verbose_name_plural: len(objs)}, set(), protected
        return super().get_deleted_objects(objs, request)


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
    raw_id_fields = ()
    autocomplete_fields = ("user",)

    def has_change_permission(self, request: HttpRequest, obj: AuthToken | None = None) -> bool:
        return False  # it is made and taken away; a digest or an owner is nothing to edit

    def formfield_for_foreignkey(self, db_field: ForeignKey[Any, Any], request: HttpRequest, **more: Any) -> Any:
        if not request.user.is_superuser:  # a token acts as its user
            more["queryset"] = User.objects.filter(is_superuser=False)
        return super().formfield_for_foreignkey(db_field, request, **more)

    def save_model(self, request: HttpRequest, obj: AuthToken, form: Any, change: bool) -> None:
        if not change:
            self.message_user(request, gettext("The token is %(token)s: copy it now, it is shown this once.") % {"token": form.token})
        ModelAdmin.save_model(self, request, obj, form, change)


@admin.register(Failure)
class FailureAdmin(FailAdmin, ModelAdmin):  # type: ignore[misc]  # unfold, knox and django-q2 ship no types
    pass
