"""
Tests of retries, time limits, dead letters and a replay that take no time.

`redrive_drive` comes with redrive. It runs the application on a store in memory and a clock that the test moves;
the worker and its decisions are the real ones. Run it in this folder (`pip install redrive pytest`):

    $ pytest
"""

import pytest
from mailing import app, sent, server


@pytest.fixture(autouse=True)
def _fresh():
    server["state"] = "up"
    sent.clear()


def test_a_mail_waits_for_the_server(redrive_drive):
    test = redrive_drive(app)
    server["state"] = "down"
    receipt = test.enqueue("mail.send", {"to": "ana@example.org"})
    test.tick()  # one try, now
    assert test.letter(receipt.id).attempts == 1

    server["state"] = "up"
    test.run_until_idle()  # the clock jumps to the retry
    assert test.letter(receipt.id).status == "delivered"
    assert sent == ["ana@example.org"]


def test_a_mail_is_given_up_after_six_tries_and_can_be_replayed(redrive_drive):
    test = redrive_drive(app)
    server["state"] = "down"
    receipt = test.enqueue("mail.send", {"to": "bob@example.org"})
    test.run_until_idle()
    letter = test.letter(receipt.id)
    assert (letter.status, letter.attempts, letter.why) == ("failed", 6, "exhausted")

    server["state"] = "up"
    test.run(app.desk.replay(receipt.id, reason="the server is back"))
    test.run_until_idle()
    assert test.letter(receipt.id).status == "delivered"


def test_a_mail_without_an_address_is_not_tried_again(redrive_drive):
    test = redrive_drive(app)
    receipt = test.enqueue("mail.send", {"to": "nobody"})
    test.run_until_idle()
    letter = test.letter(receipt.id)
    assert (letter.status, letter.attempts) == ("failed", 1)


def test_a_server_that_hangs_costs_twenty_seconds_a_try_and_the_test_none(redrive_drive):
    test = redrive_drive(app)
    server["state"] = "hangs"
    receipt = test.enqueue("mail.send", {"to": "cyd@example.org"})
    test.run_until_idle()
    assert test.letter(receipt.id).error_type == "TimeoutError"
