"""The query language: what people type, read once into terms that every store answers alike."""

from redrive.core.query.parsing import MAX_LENGTH, MAX_TERMS, Query, parse, require
from redrive.core.query.terms import FIELDS, Term, glob

__all__ = ["FIELDS", "MAX_LENGTH", "MAX_TERMS", "Query", "Term", "glob", "parse", "require"]
