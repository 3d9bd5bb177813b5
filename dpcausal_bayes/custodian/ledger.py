"""The record of what was spent: written before noise is drawn, shared by processes, refusing."""

from __future__ import annotations

import hashlib
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from dpcausal_bayes.accounting import REPLACE_ONE_LABEL, REPLACE_ONE_RECORD, PrivacyLoss
from dpcausal_bayes.custodian.composition import compose_losses

__all__ = ["Entry", "Ledger", "LedgerError"]

FORMAT = "dpcausal_bayes/ledger"
FORMAT_VERSION = 1

# Two halves of a budget may sum to a last digit more than the whole.
_ROUNDING = 1e-9


class LedgerError(ValueError):
    """A charge that is refused, or a ledger file that cannot be trusted."""


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One charge: what it was for, when, and what it cost."""

    what: str
    time: str
    loss: PrivacyLoss


class _Book(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The ledger's file, without its hash."""

    format: str
    format_version: int
    epsilon: float
    delta: float
    entries: tuple[Entry, ...]
    sha256: str = ""


class Ledger:
    """A total privacy budget and what has been spent of it.

    A charge is checked and recorded before any noise is drawn, so a crash can waste budget and
    never overspend it. One ledger guards one confidential table: make all its releases through it.

    All entries together say what one total protects, ``adjacency``. What hides a whole record
    hides its label too, so a release that protects records may follow those that protect labels:
    the total is then about labels. The other way round the budget for records would turn into one
    for labels, and the charge is refused.

    Parameters
    ----------
    epsilon, delta : float
        The total budget, for neighbours that differ by ``adjacency``.
    path : path-like, optional
        A JSON file that keeps the entries; made if it is missing, resumed if it is there.
        Processes that share the file (on one machine) cannot overspend together. Without a path
        the record lasts as long as the object.

    Raises
    ------
    LedgerError
        The file is damaged, or holds a different budget.
    ValueError
        A budget outside its range.

    Examples
    --------
    >>> ledger = Ledger(epsilon=1.5, delta=1e-6)
    >>> loss = PrivacyLoss(pure_epsilon=1.0, rho=0.3, epsilon=1.0, delta=0.0)
    >>> ledger.charge("first release", loss)
    >>> ledger
    Ledger(budget (1.5, 1e-06), spent (1, 0), 1 entry, in memory)
    >>> ledger.charge("second release", loss)
    Traceback (most recent call last):
    ...
    dpcausal_bayes.custodian.ledger.LedgerError: 'second release' is refused: it asks for 1-DP, \
0.3-zCDP; neighbours: replace one label, which would bring the total to (2, 0); spent so far \
(1, 0), budget (1.5, 1e-06). Lower the release's epsilon, or do without it
    """

    def __init__(
        self, *, epsilon: float, delta: float = 0.0, path: str | os.PathLike[str] | None = None
    ) -> None:
        self._epsilon = _budget(epsilon, "epsilon")
        self._delta = _budget(delta, "delta")
        if self._epsilon <= 0:
            raise ValueError(f"Ledger.epsilon is {epsilon}: the budget must be positive")
        if not 0 <= self._delta < 1:
            raise ValueError(f"Ledger.delta is {delta}: it must be in [0, 1)")
        self._path = None if path is None else Path(path).absolute()
        self._thread = threading.Lock()
        self._known: tuple[Entry, ...] = ()
        if self._path is not None:
            with self._locked():
                if self._path.exists():
                    self._known = self._read()
                else:
                    self._write(())

    @property
    def epsilon(self) -> float:
        """The budget's epsilon."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The budget's delta."""
        return self._delta

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every charge so far, oldest first, those of other processes included."""
        with self._locked():
            return self._refresh()

    @property
    def spent(self) -> tuple[float, float]:
        """The (epsilon, delta) of all charges together."""
        return self._total(self.entries)

    @property
    def remaining(self) -> tuple[float, float]:
        """The (epsilon, delta) that one more release of any kind can surely have."""
        epsilon, delta = self.spent
        return max(self._epsilon - epsilon, 0.0), max(self._delta - delta, 0.0)

    @property
    def adjacency(self) -> str | None:
        """Which tables are neighbours to the total; ``None`` as long as nothing is spent."""
        return _protected(self.entries)

    def charge(self, what: str, loss: PrivacyLoss) -> None:
        """Record a release before it is made, or refuse it.

        Parameters
        ----------
        what : str
            What the release is, for people who read the ledger.
        loss : PrivacyLoss

        Raises
        ------
        LedgerError
            The total would exceed the budget or protect less than before, or the file cannot be
            trusted. Nothing is recorded.
        """
        with self._locked():
            entries = self._admit(self._refresh(), what, loss)
            if self._path is not None:
                self._write(entries)
            self._known = entries

    def check(self, what: str, losses: Sequence[PrivacyLoss]) -> None:
        """Raise as `charge` would, if several releases were charged one after the other.

        Nothing is recorded, so another process may still come first.

        Parameters
        ----------
        what : str
        losses : sequence of PrivacyLoss

        Raises
        ------
        LedgerError
            One of them would be refused.
        """
        entries = self.entries
        for loss in losses:
            entries = self._admit(entries, what, loss)

    def _admit(self, entries: tuple[Entry, ...], what: str, loss: PrivacyLoss) -> tuple[Entry, ...]:
        """Return the entries with one more, or refuse it."""
        if not isinstance(loss, PrivacyLoss):
            raise TypeError(f"loss is a {type(loss).__name__}: pass a PrivacyLoss")
        entry = Entry(what=str(what), time=datetime.now(UTC).isoformat("T", "seconds"), loss=loss)
        before = _protected(entries)
        if before not in (None, _protected((*entries, entry))):
            raise LedgerError(
                f"{entry.what!r} is refused: its neighbours ({loss.adjacency}) would make the "
                f"total protect less than it does so far ({before}). Charge it to a ledger of "
                "its own, and state both totals"
            )
        after = self._total((*entries, entry))
        if not after[0] <= self._epsilon * (1 + _ROUNDING):
            self._refuse(entry, entries, after)
        return (*entries, entry)

    def __repr__(self) -> str:
        count = len(self.entries)
        return (
            f"Ledger(budget {_pair(self._epsilon, self._delta)}, spent {_pair(*self.spent)}, "
            f"{count} entr{'y' if count == 1 else 'ies'}, "
            f"{'in memory' if self._path is None else f'in {self._path.name}'})"
        )

    def _total(self, entries: tuple[Entry, ...]) -> tuple[float, float]:
        return compose_losses([entry.loss for entry in entries], self._delta)

    def _refuse(self, entry: Entry, entries: tuple[Entry, ...], after: tuple[float, float]) -> None:
        if math.isinf(after[0]):
            total = "which no bound holds at the budget's delta"
            remedy = "Give the ledger a delta, or use Laplace noise, which is pure"
        else:
            total = f"which would bring the total to {_pair(*after)}"
            remedy = "Lower the release's epsilon, or do without it"
        raise LedgerError(
            f"{entry.what!r} is refused: it asks for {entry.loss}, {total}; spent so far "
            f"{_pair(*self._total(entries))}, budget {_pair(self._epsilon, self._delta)}. {remedy}"
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other threads and, with a file, other processes out."""
        with self._thread:
            if self._path is None:
                yield
                return
            # The lock has a file of its own: the ledger's is replaced at every charge.
            with open(self._path.with_name(self._path.name + ".lock"), "a") as file:
                _lock(file)
                yield

    def _refresh(self) -> tuple[Entry, ...]:
        """Return all entries, making sure that the file has lost none of those seen before."""
        if self._path is not None:
            entries = self._read()
            if entries[: len(self._known)] != self._known:
                raise LedgerError(
                    f"{self._path} has lost or changed entries since it was read: put back the "
                    "ledger that belongs to this table before anything else is released"
                )
            self._known = entries
        return self._known

    def _read(self) -> tuple[Entry, ...]:
        try:
            book = msgspec.json.decode(self._path.read_bytes(), type=_Book)  # type: ignore[union-attr]
        except FileNotFoundError:
            raise LedgerError(
                f"{self._path} is gone, and with it the record of what was spent: put it back "
                "before anything else is released"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise self._untrusted(str(error)) from None
        if book.format != FORMAT or book.format_version != FORMAT_VERSION:
            raise self._untrusted(f"format {book.format!r}, version {book.format_version}")
        if book.sha256 != _hash(book):
            raise self._untrusted("its content does not have the SHA-256 in its field 'sha256'")
        if (book.epsilon, book.delta) != (self._epsilon, self._delta):
            raise LedgerError(
                f"{self._path} holds the budget {_pair(book.epsilon, book.delta)}, but "
                f"{_pair(self._epsilon, self._delta)} was asked for: a budget is set once; open it "
                "with the budget it holds"
            )
        return book.entries

    def _write(self, entries: tuple[Entry, ...]) -> None:
        """Replace the file in one step, and return only once it is on the disk."""
        assert self._path is not None
        book = _Book(
            format=FORMAT,
            format_version=FORMAT_VERSION,
            epsilon=self._epsilon,
            delta=self._delta,
            entries=entries,
        )
        book = msgspec.structs.replace(book, sha256=_hash(book))
        content = msgspec.json.format(msgspec.json.encode(book), indent=2) + b"\n"
        temporary = self._path.with_name(self._path.name + ".part")
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self._path)
        directory = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _untrusted(self, why: str) -> LedgerError:
        return LedgerError(
            f"{self._path} is not an intact ledger ({why}): nothing is released until it is put "
            "back from a copy; to start afresh would forget what was spent"
        )


def _protected(entries: tuple[Entry, ...]) -> str | None:
    """Return the neighbours of all entries together: those of the weakest protection."""
    kinds = {entry.loss.adjacency for entry in entries}
    if kinds == {REPLACE_ONE_LABEL, REPLACE_ONE_RECORD}:
        return REPLACE_ONE_LABEL
    return " and ".join(sorted(kinds)) or None


def _hash(book: _Book) -> str:
    content = msgspec.json.encode(msgspec.structs.replace(book, sha256=""))
    return hashlib.sha256(content).hexdigest()


def _pair(epsilon: float, delta: float) -> str:
    return f"({epsilon:.6g}, {delta:.6g})"


def _budget(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"Ledger.{field} is {value!r}: it must be a number")
    if not math.isfinite(value):
        raise ValueError(f"Ledger.{field} is {value}: it must be finite")
    return float(value)


def _lock(file: Any) -> None:
    try:
        import fcntl
    except ImportError:
        raise LedgerError(
            "a ledger in a file needs POSIX file locks, which this system lacks: leave path out "
            "and keep one process for all releases"
        ) from None
    fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
