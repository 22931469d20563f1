"""
redrive in a Django project: add `redrive.django` to INSTALLED_APPS.

Owns the management command `redrive_worker`. Needs the extra `django`; knows no store and no handler.
"""
