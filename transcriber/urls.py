from django.contrib import admin
from django.urls import include, path, re_path
from django.utils import translation
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from records.api.errors import UnknownAddress
from transcriber.health import healthz, readyz
from transcriber.metrics import metrics

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("healthz", healthz),
    path("readyz", readyz),
    path("metrics", metrics),
    path("i18n/", include("django.conf.urls.i18n")),
    path("signin/", include("transcriber.signin.urls")),
    path("admin/", admin.site.urls),
    path("api/v1/", include("records.api.urls")),
    path("api/v1/", include("topics.api.urls")),
    path("api/v1/schema/", translation.override("en")(SpectacularAPIView.as_view()), name="schema"),
    path("api/v1/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    re_path("^api/", UnknownAddress.as_view()),
]

handler400 = "records.api.errors.bad_request"
handler500 = "records.api.errors.server_error"
