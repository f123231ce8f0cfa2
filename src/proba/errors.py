"""Mistakes a user can make. Each message says what to do next; the CLI prints it and exits with code 2."""


class ProbaError(Exception):
    """Base of everything that the user, not a programmer, can mend."""


class InputError(ProbaError):
    """A file or folder is missing, unreadable, or holds something else than was asked for."""


class GeometryError(ProbaError):
    """The matches cannot carry a reconstruction (no overlap, too few matches)."""


class StorageError(ProbaError):
    """A disk is full or broken: what was to be written is not, and what was there before is unchanged."""
