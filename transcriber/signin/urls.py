from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import path

from transcriber.signin.views import begin, callback

app_name = "signin"

urlpatterns = [
    path("", begin, name="begin"),
    path("callback/", callback, name="callback"),
    # The admin's own lets only its staff sign out.
    path("out/", LogoutView.as_view(next_page="admin:login"), name="out"),
]
