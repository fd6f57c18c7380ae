"""The admin as a whole: its name, and what of other people's apps an operator is spared."""

from django.contrib import admin
from django_q.admin import OrmQ, Success

admin.site.site_title = admin.site.site_header = "Transcriber"
admin.site.index_title = "Operator's console"
admin.site.enable_nav_sidebar = False  # the list of records needs the room

# django-q2's table of background tasks. Recordings never pass through it, so it would only mislead; its failures and schedules stay.
admin.site.unregister([OrmQ, Success])
