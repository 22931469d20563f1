"""Letters that leave for another system."""

from redrive import RetryPolicy, Status
from redrive.core.classify import HANDLER, RELAY


class Refusing:
    """A publisher whose other side says no."""

    def __init__(self, error):
        self.error, self.seen = error, []

    async def publish(self, letter):
        self.seen.append(letter.id)
        raise self.error


class Taking:
    def __init__(self):
        self.seen = []

    async def publish(self, letter):
        self.seen.append(letter.payload)


async def test_a_publisher_gets_the_letters_of_its_kind_whatever_their_origin(app, in_memory):
    there = Taking()
    app.publisher("order.paid", there, queue="events")
    async with in_memory(app) as test:
        receipt = await app.enqueue("order.paid", 1, origin="outbox")
        await app.enqueue("order.made", 2, origin="order.paid:1", queue="events")
        await test.run_until_idle()
        assert there.seen == [b"1"]
        assert (await app.desk.show(receipt.id)).status is Status.DELIVERED


async def test_a_no_of_the_other_side_makes_a_dead_letter_at_once(app, in_memory):
    there = Refusing(PermissionError("not yours"))
    app.publisher("order.paid", there, policy=RetryPolicy.immediate(max_attempts=5))
    async with in_memory(app) as test:
        receipt = await app.enqueue("order.paid", 1)
        await test.run_until_idle()
        assert (await app.desk.show(receipt.id)).status is Status.FAILED
    assert len(there.seen) == 1


def test_the_names_from_before_register_the_same(app):
    relay, home = app.relay("order.paid", Taking()), app.send_home("kafka", Taking())
    assert (relay.kind, relay.queue, relay.rules) == ("order.paid", "default", RELAY)
    assert (home.kind, home.queue, home.rules) == ("kafka", "kafka", HANDLER)
