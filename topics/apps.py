from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TopicsConfig(AppConfig):
    name = "topics"
    verbose_name = _("Topics")
