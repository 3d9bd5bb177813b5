"""Models of releases: each is a function that takes a release and returns a ``pymc.Model``."""

__all__: list[str] = []
