"""The query language: what people type, read once into terms that every store answers alike."""

from redrive.core.query.lenses import LENSES, Lens
from redrive.core.query.parsing import MAX_LENGTH, MAX_TERMS, Query, parse, require
from redrive.core.query.terms import FIELDS, Term, glob

__all__ = ["FIELDS", "LENSES", "MAX_LENGTH", "MAX_TERMS", "Lens", "Query", "Term", "glob", "parse", "require"]
