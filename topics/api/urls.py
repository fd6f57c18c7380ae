from django.urls import path

from topics.api.views import Topics

urlpatterns = [path("topics/", Topics.as_view(), name="topics")]
