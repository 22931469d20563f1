"""
An order and its letter in one transaction of Django: both are kept, or neither.

Shows a project from settings to worker: `shop/settings.py` names the redrive application, `shop/letters.py` has
the handlers, `shop/management/commands/place_order.py` enqueues in the transaction that writes the order.
Needs PostgreSQL (`docker compose up --wait` starts one) and `pip install 'redrive[django,postgres]'`. In this folder:

    $ python manage.py migrate --run-syncdb
    $ redrive --url postgresql://redrive@localhost/redrive migrate
    $ python manage.py place_order 17
    $ python manage.py place_order 18 --unpaid
    $ python manage.py redrive_worker --until-idle
    $ python manage.py bookings
"""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
execute_from_command_line(sys.argv)
