"""Rows of the comparison: the compared commands, and the checks of their results."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from measure import Usage


# Suffix of the names of variants that run the program of `--before`.
BEFORE = " (before)"


class Skip(Exception):
    """The machine cannot run the row."""


@dataclass(frozen=True)
class Variant:
    """One compared command. `ours` is `True` for thalweg. `against` limits the tools with which a variant of thalweg is compared.

    `before` is `True` for an earlier version of thalweg. It is compared with the variant of the same name.
    """

    name: str
    run: Callable[[Path], Usage]
    guarantee: str = ""
    needs: tuple[str, ...] = ()
    ours: bool = False
    against: tuple[str, ...] = ()
    before: bool = False


@dataclass
class Plan:
    """A row that is ready to run. `fresh` makes the place of a sample, and `check` raises an exception if the bytes are wrong."""

    variants: list[Variant]
    fresh: Callable[[], AbstractContextManager[Path]]
    check: Callable[[Path, Variant], None]
    verified: str
    notes: list[str] = field(default_factory=list)
    # The processes whose CPU time counts.
    cpu: str = "whole process tree"


@dataclass(frozen=True)
class Row:
    name: str
    what: str
    section: str
    prepare: Callable
    # Number of rounds before the first one that counts.
    warm_up: int = 1


ROWS: list[Row] = []


def row(name: str, what: str, section: str, warm_up: int = 1) -> Callable:
    """Declares a row. The decorated function prepares it and returns its plan."""

    def declare(prepare: Callable) -> Callable:
        ROWS.append(Row(name, what, section, prepare, warm_up))
        return prepare

    return declare
