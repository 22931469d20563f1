"""
The second half of the story: an operator looks, understands, fixes and replays.

Owns the order of the operator's acts; each is one call of the desk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from redrive.demo.running import how_many, work_off
from redrive.demo.screen import count
from redrive.demo.shop import FIXED

if TYPE_CHECKING:
    from pathlib import Path

    from redrive.app import Redrive
    from redrive.core.letter import Letter
    from redrive.demo.screen import Screen

_CANARY = 5
BAD = "status:failed kind:order.confirm"
BUG = "status:failed kind:parcel.ship"
CURSED = "status:failed kind:invoice.render"
_WHAT_IF = "exponential:first=1,max_attempts=8"


async def look(app: Redrive, screen: Screen) -> None:
    """Group the dead letters."""
    failed = await how_many(app, "status:failed")
    groups = await app.desk.groups()
    screen.step(
        f"Group the {count(failed)} dead letters", f"{count(failed)} failures, but only {len(groups)} things to fix."
    )
    rows = [(one.count, one.kinds[0], await _said(app, one.group)) for one in groups]
    screen.table(("letters", "kind", "error"), rows)


async def understand(app: Redrive, screen: Screen) -> Letter:
    """Explain one dead letter, and try another policy on it; return it."""
    screen.step("Explain one of them", "Every try is on record, and another policy can be tried on paper.")
    letter = (await app.desk.ls(BUG, limit=1)).letters[0]
    found = await app.desk.explain(letter.id)
    screen.say(f"[dim]letter [/] {letter.id}")
    screen.say(f"[dim]policy [/] {found.policy}")
    screen.say(f"[dim]rule   [/] {found.tries[0].rule}")
    rows = [(one.attempt, one.error_type, one.category, one.why, _span(one.delay)) for one in found.tries]
    screen.table(("try", "error", "category", "then", "waited"), rows)
    screen.say(f"[dim]what if[/] {_WHAT_IF}")
    supposed = await app.desk.what_if(letter.id, _WHAT_IF)
    screen.say(f"[dim]then   [/] {supposed.ends}")
    return letter


async def fix(app: Redrive, screen: Screen) -> None:
    """Edit the bad payloads, and put the letter aside that nothing can help."""
    screen.step("Fix the causes", "Payloads are edited in place, with an audit entry; code is deployed.")
    edited = [await _edit(app, letter) for letter in (await app.desk.ls(BAD, limit=1_000)).letters]
    _show_diff(screen, edited[0])
    screen.done(f"{count(len(edited))} payloads of order.confirm edited")
    screen.done(f"release {FIXED} deployed: parcel.ship knows that a voucher weighs nothing")
    archived = await app.desk.archive(query=CURSED, reason="the font crashes the renderer; sent by hand")
    screen.done(f"{count(archived.acted)} invoice that crashes its process archived, with a reason")


async def replay(app: Redrive, screen: Screen, folder: Path) -> None:
    """Replay a few, look, replay the rest."""
    screen.step("Replay five, then the rest", "A canary shows that the fix works before everything depends on it.")
    canary = await app.desk.replay(query=BUG, limit=_CANARY, reason=f"canary of release {FIXED}")
    await work_off(app, folder, FIXED)
    healthy = await how_many(app, "status:delivered cycles:>0")
    screen.done(f"canary: {count(canary.acted)} replayed, {count(healthy)} delivered")
    preview = await app.desk.preview("replay", "status:failed")
    plan = await app.desk.start("replay", "status:failed", reason=f"payloads edited, release {FIXED} deployed")
    screen.say(f"[dim]plan[/] {plan.id[:8]}[dim]: replay[/] {count(preview.count)} letters, {_kinds(preview.kinds)}")
    done = await app.desk.carry_out(plan.id)
    await work_off(app, folder, FIXED)
    screen.done(f"{count(done.acted)} replayed, {count(await how_many(app, 'status:failed'))} failed again")


async def _edit(app: Redrive, letter: Letter) -> str:
    order = msgspec.json.decode(letter.payload)
    payload = msgspec.json.encode({**order, "quantity": 2})
    edited = await app.desk.edit(letter.id, payload, version=letter.payload_version, reason="'two' is 2")
    return edited.diff


async def _said(app: Redrive, group: str) -> str:
    """Return the error of one letter of *group*."""
    letter = (await app.desk.ls(f"group:{group}", limit=1)).letters[0]
    return f"{letter.error_type}: {letter.last_error}"


def _show_diff(screen: Screen, diff: str) -> None:
    for line in diff.splitlines():
        if line.startswith(("- ", "+ ")):
            screen.quote(line, style="green" if line.startswith("+") else "red")


def _span(seconds: float) -> str:
    return f"{seconds:.3f} s" if seconds else ""


def _kinds(kinds: dict[str, int]) -> str:
    return ", ".join(f"{count(number)} {kind}" for kind, number in kinds.items())
