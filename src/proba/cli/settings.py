"""The option dataclasses on the command line: every field is an option, and its docstring is the help text."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, make_dataclass
from functools import cache
from importlib.metadata import EntryPoint
from itertools import pairwise
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from proba.cli.options import OUT, default_hint
from proba.errors import InputError

SHORT = {
    "MatchOptions.matcher": "matcher",
    "MatchOptions.masks": "masks",
    "MatchOptions.weights": "weights",
    "MatchOptions.graph_matcher": "graph-matcher",
    "MatchOptions.densify": "densify",
    "MatchOptions.pair_filter": "pair-filter",
    "PairOptions.mode": "pairs",
    "PairOptions.file": "pairs-file",
    "SolveOptions.preset": "preset",
    "SolveOptions.seed": "seed",
    "ClusterOptions.count": "clusters",
    "CameraOptions.share": "share",
    "CameraOptions.focal": "focal",
    "KnownPoseOptions.file": "poses",
    "KnownPoseOptions.use": "poses-as",
    "KnownPoseOptions.gps": "gps",
    "RigOptions.cameras": "rig",
    "CameraOptions.focal_px": "focal-px",
    "CameraOptions.intrinsics": "intrinsics",
    "CameraOptions.calibration": "calibration",
    "CameraOptions.model": "camera-model",
    "SolverOptions.hypotheses": "hypotheses",
    "SolverOptions.device": "device",
}
"""Options with a name that has no prefix. All others have one, `--solver.iterations` for example."""
RARE = {"calibration", "rig", "graph-matcher", "densify", "pair-filter", "pairs-file", "device"}
"""Those of them that few people need: `--help-all` shows them with all others, `--help` does not."""


def option_rules(*, everything: bool, start: Sequence[Any] = ()) -> ConstructorRegistry:
    """How tyro reads options. Without `everything` only those that most people need are shown and read, each with the
    first sentence of its text.

    `start` are option dataclasses whose values are the defaults of their kind.
    """
    registry = ConstructorRegistry()
    registry.primitive_rule(_optional_value)
    registry.primitive_rule(_named_function)
    defaults = {type(options): options for options in start}
    registry.struct_rule(lambda info: _options(info, defaults, everything=everything))
    return registry


def _optional_value(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """The help says PATH where tyro would say {None}|PATH. Numbers may be None: that turns something off."""
    kind: type | None = next((kind for kind in (Path, str, int, float) if info.type == kind | None), None)
    if kind is None:
        return None

    def parse(words: list[str]) -> Any:
        return None if kind in (int, float) and words[0].lower() == "none" else kind(words[0])

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=kind.__name__.upper(),
        instance_from_str=parse,
        is_instance=lambda value: value is None or isinstance(value, (kind, int) if kind is float else kind),
        str_from_instance=lambda value: [str(value)],
    )


def _named_function(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """A function is given by its name."""
    if not any(get_origin(kind) is Callable for kind in get_args(info.type)):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="MODULE:FUNCTION",
        instance_from_str=lambda words: load_function(words[0]),
        is_instance=lambda value: value is None or callable(value),
        str_from_instance=lambda value: [str(value)],
    )


def with_tidy_help(function: Callable) -> Callable:
    """A command whose help says nothing of defaults like None, and breaks its lines elsewhere than the source."""
    function.__doc__ = re.sub(r"\n {12}(?=\S)", " ", function.__doc__ or "")
    hints = get_type_hints(function, include_extras=True)
    for name, kind in hints.items():
        marks = getattr(kind, "__metadata__", ())
        if not is_dataclass(kind) and not any(isinstance(mark, type(OUT)) for mark in marks):
            hints[name] = Annotated[kind, tyro.conf.arg(help_behavior_hint=default_hint)]
    function.__annotations__ = hints
    return function


def load_function(name: str) -> Callable:
    """The function that `package.module:function` names."""
    try:
        found = EntryPoint(name="option", value=name, group="proba").load()
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise InputError(
            f"The function {name} cannot be loaded ({error}). Give package.module:function of an installed package."
        ) from error
    if not callable(found):
        raise InputError(f"{name} is not a function but a {type(found).__name__}.")
    return found


def _options(info: StructTypeInfo, defaults: dict[type, Any], *, everything: bool) -> StructConstructorSpec | None:
    """An option dataclass as tyro's struct: short names, docstrings as help, wrong values as our own errors."""
    cls = info.type
    whole = getattr(cls, "whole", None)
    if not is_dataclass(cls) or not (whole or cls.__module__.startswith("proba.")):
        return None
    given = defaults.get(cls, info.default)
    types, docs = get_type_hints(cls, include_extras=True), field_docs(whole or cls)
    specs = []
    for entry in fields(cls):
        default = getattr(given, entry.name) if isinstance(given, cls) else _default(entry)
        kind, short = types[entry.name], SHORT.get(f"{cls.__name__}.{entry.name}")
        if inner := _optional_dataclass(kind):
            kind, default = _in_parts(inner), _in_parts(inner)()
        text = docs.get(entry.name) or (inspect.getdoc(kind) if is_dataclass(kind) else None)
        if not everything:
            text = "" if _nested(kind) else _first_sentence(text)
        if not _nested(kind):
            kind = Annotated[kind, tyro.conf.arg(name=short, prefix_name=not short, help_behavior_hint=default_hint)]
            if not everything and (not short or short in RARE):
                kind = Annotated[kind, tyro.conf.Suppress]
        specs.append(StructFieldSpec(name=entry.name, type=kind, default=default, helptext=text))

    def make(**values: Any) -> Any:
        if whole is not None:
            values = {name: value for name, value in values.items() if value is not None}
            return _checked(whole, values) if values else None
        return _checked(cls, values)

    return StructConstructorSpec(instantiate=make, fields=tuple(specs))


def _first_sentence(text: str | None) -> str | None:
    return None if text is None else re.split(r"(?<=[.;]) (?=\w)", text, maxsplit=1)[0].rstrip(";")


def _nested(kind: Any) -> bool:
    """Whether a type is a dataclass or a sequence of them, whose fields are options of their own."""
    return is_dataclass(kind) or any(is_dataclass(part) for part in get_args(kind))


def _checked(cls: type, values: dict[str, Any]) -> Any:
    try:
        return cls(**values)
    except ValueError as error:
        raise InputError(str(error)) from error


def _default(entry: Field) -> Any:
    return entry.default if entry.default_factory is MISSING else entry.default_factory()


def _optional_dataclass(kind: Any) -> type | None:
    """X where the type is X | None and X is a dataclass."""
    found = [part for part in get_args(kind) if isinstance(part, type) and is_dataclass(part)]
    return found[0] if found and NoneType in get_args(kind) else None


@cache
def _in_parts(cls: type) -> type:
    """A dataclass whose fields may all be left out: then there is none of it."""
    parts = [(entry.name, kind | None, None) for entry, kind in zip(fields(cls), _kinds(cls), strict=True)]
    return make_dataclass(f"{cls.__name__}Parts", parts, kw_only=True, frozen=True, namespace={"whole": cls})


def _kinds(cls: type) -> list[Any]:
    types = get_type_hints(cls)
    return [types[entry.name] for entry in fields(cls)]


@cache
def field_docs(cls: type) -> dict[str, str]:
    """The docstring under each field of a class, as one line."""
    (body,) = (node.body for node in ast.walk(ast.parse(inspect.getsource(cls))) if isinstance(node, ast.ClassDef))
    docs = {}
    for entry, text in pairwise(body):
        if isinstance(entry, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            docs[ast.unparse(entry.target)] = " ".join(str(text.value.value).split())
    return docs
