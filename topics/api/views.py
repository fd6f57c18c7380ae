from __future__ import annotations

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import ListAPIView

from topics.models import Topic


class TopicSerializer(serializers.ModelSerializer[Topic]):
    class Meta:
        model = Topic
        fields = ["id", "name"]


@extend_schema_view(get=extend_schema(operation_id="topics_list", summary="Your vocabulary of topics, by name"))
class Topics(ListAPIView[Topic]):
    serializer_class = TopicSerializer
    queryset = Topic.objects.none()  # for the schema
    ordering = "name"

    def get_queryset(self) -> QuerySet[Topic]:
        return Topic.objects.filter(owner_id=self.request.user.pk)
