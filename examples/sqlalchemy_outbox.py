"""
An order and its letter in one transaction of SQLAlchemy: both are kept, or neither.

Shows `app.outbox(session)`, what a rollback leaves, and `app.once(letter, session)` for an effect that happens
once although the letter runs twice. Needs PostgreSQL (`docker compose up --wait` starts one) and
`pip install 'redrive[postgres,sqlalchemy]'`:

    $ python sqlalchemy_outbox.py
"""

import asyncio
import os

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from redrive import Letter, Redrive, RetryPolicy

URL = os.environ.get("REDRIVE_URL", "postgresql://redrive@localhost/redrive")
app = Redrive(URL)
engine = sa.create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "example_orders"
    number: Mapped[int] = mapped_column(primary_key=True)


class Booking(Base):
    __tablename__ = "example_bookings"
    id: Mapped[int] = mapped_column(primary_key=True)
    order: Mapped[int]


def place(number: int, *, paid: bool) -> None:
    with Session(engine) as session, session.begin():  # commits at the end, rolls back if the block raises
        session.add(Order(number=number))
        app.outbox(session).enqueue("order.placed", {"order": number})
        if not paid:
            raise ValueError(f"order {number} is not paid")


@app.handler("order.placed", policy=RetryPolicy.immediate(max_attempts=3))
def book(order: dict[str, int], letter: Letter) -> None:
    with Session(engine) as session, session.begin(), app.once(letter, session) as first:
        if first:
            session.add(Booking(order=order["order"]))
    if letter.attempts == 1:
        raise ConnectionError("the connection broke after the commit")  # so the letter runs a second time


async def main() -> None:
    Base.metadata.drop_all(engine)
    Base.metadata.create_all(engine)
    async with app:
        await asyncio.to_thread(place, 17, paid=True)
        try:
            await asyncio.to_thread(place, 18, paid=False)
        except ValueError as error:
            print(f"rolled back: {error}")
        await app.run(until_idle=True)
        for letter in (await app.desk.ls("kind:order.placed")).letters:
            print(f"{letter.payload.decode()} is {letter.status} after {letter.attempts} tries")
    with Session(engine) as session:
        print(f"orders {session.scalars(sa.select(Order.number)).all()}")
        print(f"bookings {session.scalars(sa.select(Booking.order)).all()}")
    engine.dispose()


asyncio.run(main())
