"""The JSON files that releases travel in: one format, a version, and a hash of the content."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dpcausal_bayes.laws import Gaussian, Laplace

__all__ = ["ReleaseError", "content_hash", "read_file", "to_json", "write_file"]

_NOISE_TAGS: dict[type, str] = {Laplace: "Laplace", Gaussian: "Gaussian"}


class ReleaseError(ValueError):
    """A release, or a file of one, that cannot be used; the message says why and what to do."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    format_version: int
    sha256: str
    release: msgspec.Raw


def write_file(path: str | os.PathLike[str], name: str, version: int, release: Any) -> None:
    """Write a release in one step: the whole file or nothing.

    Parameters
    ----------
    path : path-like
    name, version : str, int
        Of the format.
    release : LabelRelease
    """
    path = Path(path)
    content = to_json(release)
    head = {"format": name, "format_version": version, "sha256": _hash(content)}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(msgspec.json.encode({**head, "release": msgspec.Raw(content)}) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_file(path: str | os.PathLike[str], formats: dict[str, tuple[int, type]]) -> Any:
    """Read a release of one of several kinds and check all of it.

    Parameters
    ----------
    path : path-like
    formats : dict
        Format name -> its version and the release's class.

    Raises
    ------
    ReleaseError
        A file that is truncated, altered, of another format, or of another version.
    """
    content = Path(path).read_bytes()
    kind = _check_head(path, content, formats)
    try:
        file = msgspec.json.decode(content, type=_File)
        release: Any = msgspec.json.decode(file.release, type=kind, dec_hook=_decode)
    except (msgspec.ValidationError, ReleaseError) as error:
        raise ReleaseError(f"{path} does not hold a valid release: {error}") from None
    # The hash is of the canonical encoding, so that white space added on the way does no harm.
    if content_hash(release) != file.sha256:
        raise ReleaseError(
            f"{path} was altered: its content does not have the SHA-256 in its field 'sha256'; ask "
            "for the file again"
        )
    return release


def _check_head(
    path: str | os.PathLike[str], content: bytes, formats: dict[str, tuple[int, type]]
) -> type:
    """Say plainly what is wrong with a file before its fields are looked at; return its kind."""
    try:
        head = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        found, stated = (
            msgspec.json.decode(head.get(field, msgspec.Raw(b"null")))
            for field in ("format", "format_version")
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ReleaseError(
            f"{path} is not complete JSON ({error}): it is damaged or cut short; ask for it again"
        ) from None
    if not isinstance(found, str) or found not in formats:
        raise ReleaseError(
            f"{path} is not a {' or '.join(formats)} file: its field 'format' is {found!r}"
        )
    version, kind = formats[found]
    if stated != version or isinstance(stated, bool):
        later = isinstance(stated, int) and stated > version
        remedy = "upgrade dpcausal_bayes" if later else "ask for the file again"
        raise ReleaseError(
            f"{path} has format_version {stated!r}; this package reads {version}: {remedy}"
        )
    return kind


def content_hash(release: Any) -> str:
    """Return the SHA-256 of a release's canonical JSON, as hexadecimal text."""
    return _hash(to_json(release))


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def to_json(value: Any) -> bytes:
    """Encode a release, schema, mechanism or loss as canonical JSON."""
    return msgspec.json.encode(value, enc_hook=_encode)


def from_json[T](content: bytes, kind: type[T]) -> T:
    """Decode what `to_json` made of a schema, mechanism or loss."""
    return msgspec.json.decode(content, type=kind, dec_hook=_decode)


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, type) and value in _NOISE_TAGS:
        return _NOISE_TAGS[value]
    raise NotImplementedError(f"a {type(value).__name__} has no place in a release")


def _decode(kind: type, value: Any) -> Any:
    if kind is np.ndarray:
        try:
            array = np.array(value)
        except (ValueError, OverflowError):
            raise ValueError("an array that is ragged or too large") from None
        if array.dtype.kind != "i" and array.size:
            raise ValueError("an array of whole numbers was expected")
        return array.astype(np.int64)
    if kind is type:
        for law, tag in _NOISE_TAGS.items():
            if value == tag:
                return law
        raise ValueError(f"noise is {value!r}: it must be one of {list(_NOISE_TAGS.values())}")
    raise NotImplementedError(f"no decoder for {kind}")
