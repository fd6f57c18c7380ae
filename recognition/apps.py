from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class RecognitionConfig(AppConfig):
    name = "recognition"
    verbose_name = _("Recognition")
