"""The settings of the project: one database for Django's tables and redrive's."""

import os
from urllib.parse import urlsplit

URL = os.environ.get("REDRIVE_URL", "postgresql://redrive@localhost/redrive")
_parts = urlsplit(URL)

SECRET_KEY = "only for this example"  # noqa: S105 - nothing is signed with it
INSTALLED_APPS = ["shop", "redrive.django"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": _parts.hostname,
        "PORT": _parts.port or "",
        "USER": _parts.username,
        "PASSWORD": _parts.password or "",
        "NAME": _parts.path.removeprefix("/"),
    }
}
REDRIVE_APP = "shop.letters:app"  # what `manage.py redrive_worker` runs
