"""
Rice codes as text.

Owns the Rice code and two alphabets for its bits: 15 bits a character (Kafka counts characters, not bytes) and plain
base64 for brokers that count bytes. Knows no offsets.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_LONGEST_UNARY = 24  # a larger quotient is written plainly: one outlier must not cost a page
_PLAIN = 48  # bits of a number that is written plainly
MAX_K = 31
_FIRST_WIDE = 0x3400  # U+3400 to U+B3FF: 32,768 characters in a row, none of them a surrogate


class Unreadable(Exception):
    """These bits or characters were not written by us."""


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Characters that stand for *width* bits each; *tag* is the character that names the alphabet."""

    tag: str
    width: int
    letters: str
    values: dict[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the way back."""
        values = {letter: format(number, f"0{self.width}b") for number, letter in enumerate(self.letters)}
        object.__setattr__(self, "values", values)

    def write(self, bits: str) -> str:
        """Return *bits* as text; the last character is filled up with zeros."""
        width = self.width
        padded = bits + "0" * (-len(bits) % width)
        return "".join(self.letters[int(padded[at : at + width], 2)] for at in range(0, len(padded), width))

    def read(self, text: str) -> str:
        """Return the bits of *text*; raise Unreadable for a character that is not ours."""
        try:
            return "".join(map(self.values.__getitem__, text))
        except KeyError:
            raise Unreadable("a character of another alphabet") from None


WIDE = Alphabet("R", 15, "".join(map(chr, range(_FIRST_WIDE, _FIRST_WIDE + 0x8000))))
NARROW = Alphabet("r", 6, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
ALPHABETS = {WIDE.tag: WIDE, NARROW.tag: NARROW}


def best_k(numbers: Sequence[int]) -> int:
    """Return the Rice parameter that writes *numbers* in the fewest bits, or nearly so."""
    if not numbers:
        return 0
    guess = min((sum(numbers) // len(numbers)).bit_length(), MAX_K)
    around = range(max(0, guess - 2), min(MAX_K, guess + 1) + 1)
    return min(around, key=lambda k: sum(cost(number, k) for number in numbers))


def cost(number: int, k: int) -> int:
    """Return how many bits *number* takes."""
    quotient = number >> k
    return quotient + 1 + k if quotient < _LONGEST_UNARY else _LONGEST_UNARY + _PLAIN


def rice(numbers: Iterable[int], k: int) -> Iterator[str]:
    """Yield each of *numbers*, 0 or more, as bits."""
    for number in numbers:
        quotient = number >> k
        if quotient >= _LONGEST_UNARY:
            yield "1" * _LONGEST_UNARY + format(number, f"0{_PLAIN}b")
        else:
            yield "1" * quotient + "0" + (format(number & (1 << k) - 1, f"0{k}b") if k else "")


class BitReader:
    """Reads numbers off a string of bits; raises Unreadable at its end."""

    def __init__(self, bits: str) -> None:
        self._bits = bits
        self._at = 0

    def number(self, width: int) -> int:
        """Return the number in the next *width* bits."""
        end = self._at + width
        if end > len(self._bits):
            raise Unreadable("it ends too early")
        piece, self._at = self._bits[self._at : end], end
        return int(piece, 2) if piece else 0

    def rice(self, k: int) -> int:
        """Return the next number of a Rice code."""
        zero = self._bits.find("0", self._at, self._at + _LONGEST_UNARY)
        if zero < 0:
            if self.number(_LONGEST_UNARY) != (1 << _LONGEST_UNARY) - 1:
                raise Unreadable("it ends too early")
            return self.number(_PLAIN)
        quotient, self._at = zero - self._at, zero + 1
        return quotient << k | self.number(k)

    def rest(self) -> str:
        """Return the bits that were not read."""
        return self._bits[self._at :]
