"""Django's settings, made from the configuration. Nothing imports this module; everybody reads `django.conf.settings`."""

from __future__ import annotations

import secrets
from pathlib import Path
from zoneinfo import available_timezones

import environ

from transcriber.config import ConfigError, load
from transcriber.console import UNFOLD

__all__ = ["UNFOLD"]

BASE_DIR = Path(__file__).resolve().parent.parent
TRANSCRIBER = load(BASE_DIR)
DATA_DIR = TRANSCRIBER.data
DATA_DIR.mkdir(mode=0o700, parents=True, exist_ok=True)


def _secret_key() -> str:
    """The key from the environment, or one made at the first start and kept in the data folder. Two first starts at once agree on one."""
    if TRANSCRIBER.secret_key:
        return TRANSCRIBER.secret_key
    path = DATA_DIR / "secret_key"
    if not path.exists():
        fresh = DATA_DIR / f".secret_key.{secrets.token_hex(4)}"
        fresh.touch(mode=0o600)
        fresh.write_text(secrets.token_urlsafe(50))
        try:
            path.hardlink_to(fresh)  # fails where somebody was first, and never shows half a key
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    return path.read_text().strip()


SECRET_KEY = _secret_key()
DEBUG = TRANSCRIBER.web.debug
ALLOWED_HOSTS = list(TRANSCRIBER.web.allowed_hosts)
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in ALLOWED_HOSTS if host not in ("*", "localhost", "127.0.0.1", "[::1]")]

INSTALLED_APPS = [
    "transcriber",  # before django_q: its qcluster command takes the place of theirs
    "records",
    "recognition",
    "topics",
    "transcriber.signin",
    "unfold",  # before the admin: its templates take the place of theirs
    "unfold.contrib.filters",
    "unfold.contrib.forms",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "axes",
    "django_q",
    "knox",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "drf_standardized_errors",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "transcriber.viewing.ViewersLanguage",
    "transcriber.viewing.ViewersZone",
    "transcriber.watch.Watched",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "transcriber.signin.attempts.remember_browser",
    "axes.middleware.AxesMiddleware",
]

ROOT_URLCONF = "transcriber.urls"
WSGI_APPLICATION = "transcriber.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# ---- database -----------------------------------------------------------------------------------------------------------------------


def _database() -> dict[str, object]:
    if not TRANSCRIBER.database_url:
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": DATA_DIR / "db.sqlite3",
            "OPTIONS": SQLITE_OPTIONS,
            "CONN_MAX_AGE": None,
            # A file as in earnest: a database in memory has neither WAL nor locks.
            "TEST": {"NAME": DATA_DIR / "test.sqlite3"},
        }
    try:
        database = dict(environ.Env.db_url_config(TRANSCRIBER.database_url))
    except Exception as error:
        raise ConfigError("DATABASE_URL must look like postgres://user:password@host:5432/name.") from error
    if database.get("ENGINE") == "django.db.backends.sqlite3":
        database["OPTIONS"] = SQLITE_OPTIONS
        database["CONN_MAX_AGE"] = None
    elif database.get("ENGINE") == "django.db.backends.postgresql":
        database["CONN_MAX_AGE"] = 600
        database["CONN_HEALTH_CHECKS"] = True
        database.setdefault("OPTIONS", {}).setdefault("connect_timeout", 10)
    else:
        raise ConfigError("DATABASE_URL must name PostgreSQL or SQLite.")
    return database


# IMMEDIATE, because a deferred transaction that reads and then writes can't wait for the lock. FULL, because an accepted upload and a paid
# id must survive a power cut.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    # The file itself becomes WAL in transcriber.database.keep_wal: a connection that changes it is not made to wait for another that does.
    "init_command": "PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864; PRAGMA cache_size=-16384; PRAGMA temp_store=MEMORY;",
}
DATABASES = {"default": _database()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# ---- files --------------------------------------------------------------------------------------------------------------------------

MEDIA_ROOT = DATA_DIR / "media"


def _storage() -> dict[str, object]:
    config = TRANSCRIBER.storage
    if config.backend == "local":
        return {"BACKEND": "records.storage.local.DurableFileSystemStorage", "OPTIONS": {"location": str(MEDIA_ROOT)}}
    for key in ("name", "access_key_id", "secret_access_key"):
        if not getattr(config, key):
            raise ConfigError(f"[storage] backend = s3 needs TRANSCRIBER_STORAGE_{key.upper()} as well.")
    options = {
        "endpoint_url": config.endpoint_url,
        "region_name": config.region,
        "bucket_name": config.name,
        "access_key": config.access_key_id,
        "secret_key": config.secret_access_key,
    }
    return {"BACKEND": "records.storage.objects.ObjectStorage", "OPTIONS": options}


STORAGES = {
    "default": _storage(),
    "staticfiles": {"BACKEND": "whitenoise.storage.CompressedStaticFilesStorage"},
}
STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"
# Static files are served straight from the apps: no collectstatic between the installation and the first page.
WHITENOISE_USE_FINDERS = True
FILE_UPLOAD_PERMISSIONS = 0o600
FILE_UPLOAD_DIRECTORY_PERMISSIONS = 0o700
DATA_UPLOAD_MAX_NUMBER_FILES = 1
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000

# ---- workers ------------------------------------------------------------------------------------------------------------------------

# `workers`: one for each seat (recordings) and one for django-q2's own tasks; so 0 seats need no special case.
# The records table is the queue: nothing is prefetched, nothing saved of a seat, and no timeout ends one.
Q_CLUSTER = {
    "name": "transcriber",
    "orm": "default",
    "broker_class": "transcriber.broker.RecordBroker",
    "workers": TRANSCRIBER.pipeline.workers + 1,
    "queue_limit": 0,
    "save_limit": -1,
    "bulk": 1,
    "poll": 0.2,
    "timeout": 600,
    "retry": 660,
    "max_attempts": 1,
    "recycle": 1,  # a worker that leaves its seat makes room for a fresh process
    "ack_failures": True,
    "catch_up": False,
    "label": "Background tasks",
}

# ---- API ----------------------------------------------------------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "records.api.authentication.TokenAuthentication",
        "records.api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "records.api.negotiation.AnswersJson",
    "DEFAULT_PARSER_CLASSES": ["records.api.negotiation.Json"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_METADATA_CLASS": None,  # OPTIONS tells nothing that the specification does not
    "DEFAULT_PAGINATION_CLASS": "records.api.pagination.CursorPages",
    "DEFAULT_SCHEMA_CLASS": "drf_standardized_errors.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "drf_standardized_errors.handler.exception_handler",
}
API_ERRORS = ["400", "401", "403", "404", "405", "415", "500", "503"]  # of any call; more are named where they may come
DRF_STANDARDIZED_ERRORS = {
    "EXCEPTION_HANDLER_CLASS": "records.api.errors.ExceptionHandler",
    "ALLOWED_ERROR_STATUS_CODES": API_ERRORS,
    "ERROR_SCHEMAS": dict.fromkeys(API_ERRORS, "records.api.serializers.ErrorSerializer"),
}
REST_KNOX = {"TOKEN_TTL": None, "AUTO_REFRESH": False, "TOKEN_PREFIX": ""}
SPECTACULAR_SETTINGS = {
    "TITLE": "Transcriber",
    "DESCRIPTION": (
        "A recording goes in; text, timed utterances and subtitles come out.\n\n"
        "What is for people (`detail`, `message`, `outcome_text`) is said in English or Russian, as the `Accept-Language` header asks; "
        "codes are the same in every language. Moments are UTC."
    ),
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_AUTHENTICATION": [],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "POSTPROCESSING_HOOKS": ["drf_standardized_errors.openapi_hooks.postprocess_schema_enums"],
}

# ---- people -------------------------------------------------------------------------------------------------------------------------

AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "django.contrib.auth.backends.ModelBackend"]
if TRANSCRIBER.signin.provider:
    AUTHENTICATION_BACKENDS.append("transcriber.signin.provider.ProviderBackend")
    for _key in ("client_id", "client_secret"):
        if not getattr(TRANSCRIBER.signin, _key):
            raise ConfigError(f"[signin] provider needs TRANSCRIBER_SIGNIN_{_key.upper()} as well.")
SESSION_COOKIE_AGE = int(TRANSCRIBER.signin.session_length.total_seconds())
if SESSION_COOKIE_AGE < 60:
    raise ConfigError("[signin] session_length must be 1m or more.")
# What counts as too many attempts, and all that follows from it, is decided in transcriber/signin/attempts.py.
AXES_HANDLER = "transcriber.signin.attempts.Attempts"
AXES_CLIENT_IP_CALLABLE = "transcriber.signin.attempts.address"
AXES_LOCKOUT_CALLABLE = "transcriber.signin.attempts.put_off"
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"], "ip_address", "username"]
AXES_USERNAME_FORM_FIELD = "username"
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_ENABLE_ADMIN = False  # ours shows what can be put right
AXES_VERBOSE = False
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator", "NumericPasswordValidator")
]
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("ru", "Русский")]
FORMAT_MODULE_PATH = ["transcriber.formats"]
if TRANSCRIBER.web.time_zone not in available_timezones():
    raise ConfigError("[web] time_zone must be a time zone's name, such as Europe/Moscow.")
TIME_ZONE = TRANSCRIBER.web.time_zone
USE_I18N = True
USE_TZ = True

# ---- security -----------------------------------------------------------------------------------------------------------------------

X_FRAME_OPTIONS = "DENY"
SECURE_CONTENT_TYPE_NOSNIFF = True
SESSION_COOKIE_HTTPONLY = True
if TRANSCRIBER.web.https:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_SSL_REDIRECT = True
    SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]
    SECURE_HSTS_SECONDS = int(TRANSCRIBER.web.hsts.total_seconds())
    SECURE_HSTS_INCLUDE_SUBDOMAINS = TRANSCRIBER.web.hsts_subdomains
    SECURE_HSTS_PRELOAD = TRANSCRIBER.web.hsts_preload
    # How far this goes is the domain owner's decision, and was made in the configuration.
    SILENCED_SYSTEM_CHECKS = ["security.W004", "security.W005", "security.W021"]
    SESSION_COOKIE_SECURE = True
    CSRF_COOKIE_SECURE = True

# ---- logs ---------------------------------------------------------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s [%(process)d] %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        **{name: {"level": TRANSCRIBER.log.level} for name in ("transcriber", "records", "recognition", "topics")},
        # Its own handler and its chatter about tasks are not for people who read our logs.
        "django-q": {"level": "WARNING", "handlers": ["stderr"], "propagate": False},
    },
}
