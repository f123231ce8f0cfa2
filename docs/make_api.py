"""Writes docs/api.md, the reference of what `import proba` offers, from the docstrings: python docs/make_api.py

Everything is read from the sources, with the standard library alone, so that nothing has to be compiled or loaded.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "proba"
PAGE = ROOT / "docs" / "api.md"
HEAD = """# Python API

What `import proba` offers. This page is made from the docstrings by `make docs`; do not edit it by hand.
Shapes of arrays are given as `[N, 4, 4]`; [conventions.md](conventions.md) says what frames and units mean. Options
are frozen dataclasses: give what you want to change, by name. For whole scripts see [examples](../examples) and the
[guides](guides/stages.md).
"""
TITLES = {
    "functions": "Functions",
    "data": "Data",
    "options": "Options",
    "errors": "Errors",
}


@dataclass(frozen=True)
class Entry:
    """A name, what defines it, and where."""

    name: str
    node: ast.FunctionDef | ast.ClassDef
    source: list[str]
    module: str
    exported: bool = True
    """Whether `import proba` offers it, or only refers to it."""

    @property
    def kind(self) -> str:
        if isinstance(self.node, ast.FunctionDef):
            return "functions"
        if self.name.endswith("Error"):
            return "errors"
        return "options" if self.name.endswith("Options") or self.name == "StepSizes" else "data"


def public_names() -> dict[str, str]:
    """Module of every name that `proba/__init__.py` exports."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "_MODULES":
            table: dict[str, tuple[str, ...]] = ast.literal_eval(node.value)
            return {name: module for module, names in table.items() for name in names}
    raise LookupError("proba/__init__.py has no table _MODULES")


def find(name: str, module: str) -> Entry:
    """Where a name is defined, through re-exports of packages."""
    path = PACKAGE.parent.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = file.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return Entry(name, node, text.splitlines(), module)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("proba"):
            for alias in node.names:
                if name == (alias.asname or alias.name):
                    return find(alias.name, node.module)
    raise LookupError(f"{module} does not define {name}")


def with_references(entries: list[Entry]) -> list[Entry]:
    """The entries, and the classes of this package that their fields and arguments name, and so on."""
    found = {entry.name: entry for entry in entries}
    waiting = list(entries)
    while waiting:
        entry = waiting.pop(0)
        for name in sorted(annotated(entry.node) - found.keys()):
            try:
                other = replace(find(name, entry.module), name=name, exported=False)
            except LookupError:
                continue  # a type from elsewhere, or an alias
            if isinstance(other.node, ast.ClassDef):
                found[name] = other
                waiting.append(other)
    return list(found.values())


def annotated(node: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """Names in the types of a function's arguments, or of the fields of a class."""
    if isinstance(node, ast.FunctionDef):
        types = [argument.annotation for argument in [*node.args.args, *node.args.kwonlyargs]]
    else:
        types = [field.annotation for field, _ in documented(node.body)]
    return {part.id for kind in types if kind is not None for part in ast.walk(kind) if isinstance(part, ast.Name)}


def page() -> str:
    """The whole reference."""
    entries = with_references([find(name, module) for name, module in public_names().items()])
    parts = [HEAD, "| | |\n|---|---|"]
    for kind, title in TITLES.items():
        links = ", ".join(f"[{e.name}](#{e.name.lower()})" for e in entries if e.kind == kind)
        parts[-1] += f"\n| {title} | {links} |"
    for kind, title in TITLES.items():
        parts.append(f"## {title}")
        parts += [section for entry in entries if entry.kind == kind for section in sections(entry)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def sections(entry: Entry) -> Iterator[str]:
    yield f"### {entry.name}"
    node = entry.node
    if isinstance(node, ast.FunctionDef):
        yield f"```python\nproba.{signature(node)}\n```"
        yield from description(ast.get_docstring(node) or "")
        return
    if not entry.exported:
        alias = "" if entry.name == node.name else f" as {entry.name}"
        yield f"`from {entry.module} import {node.name}{alias}`"
    bases = ", ".join(ast.unparse(base) for base in node.bases if ast.unparse(base) not in ("NamedTuple", "Protocol"))
    yield from description((ast.get_docstring(node) or "") + (f"\n\nIs a {bases}." if bases else ""))
    if table := field_table(entry, node):
        yield table
    if methods := method_list(entry, node):
        yield methods


def signature(node: ast.FunctionDef, *, bound: bool = False, wide: bool = False) -> str:
    """`name(arguments) -> result`, one argument a line where it is long."""
    args = node.args
    positional = [*args.posonlyargs, *args.args][1 if bound else 0 :]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults)) + list(args.defaults)
    words = [
        _argument(a, d) for a, d in zip(positional, defaults[-len(positional) :] if positional else [], strict=True)
    ]
    if args.kwonlyargs:
        words += ["*", *(_argument(a, d) for a, d in zip(args.kwonlyargs, args.kw_defaults, strict=True))]
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    words = [word.replace("'", '"') for word in words]
    line = f"{node.name}({', '.join(words)}){result}"
    if wide or len(line) <= 100:
        return line
    return f"{node.name}(\n" + "".join(f"    {word},\n" for word in words) + f"){result}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg
    if argument.annotation is not None:
        text += f": {ast.unparse(argument.annotation)}"
    return text if default is None else f"{text} = {ast.unparse(default)}"


def description(doc: str) -> Iterator[str]:
    """The text of a docstring as paragraphs, its arguments as a list."""
    before, _, arguments = doc.partition("Args:\n")
    for paragraph in re.split(r"\n\s*\n", before.strip()):
        if paragraph.strip():
            yield " ".join(paragraph.split())
    items = re.split(r"\n(?= {4}\w[\w, ]*:)", arguments.rstrip())
    listed = [re.match(r"\s*([\w, ]+):\s*(.*)", item, re.S) for item in items if item.strip()]
    if listed:
        yield "\n".join(f"- `{found[1]}`: {' '.join(found[2].split())}" for found in listed if found)


def documented(body: list[ast.stmt]) -> Iterator[tuple[ast.AnnAssign, str]]:
    """The public fields of a class, with the docstring below each."""
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id[0] != "_":
            is_doc = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            yield node, " ".join(str(after.value.value).split()) if is_doc else ""  # type: ignore[union-attr]


def comment(source: list[str], node: ast.stmt) -> str:
    """The comment at the end of a statement, where shapes are."""
    found = re.search(r"#\s*(.*)$", source[(node.end_lineno or node.lineno) - 1])
    return found[1] if found else ""


def field_table(entry: Entry, node: ast.ClassDef) -> str:
    rows = []
    for field, doc in documented(node.body):
        default = "" if field.value is None else _default(field.value)
        text = "; ".join(part for part in (comment(entry.source, field), doc) if part)
        rows.append((field.target.id, ast.unparse(field.annotation), default, text))  # type: ignore[union-attr]
    if not rows:
        return ""
    lines = [f"| `{name}` | {_cell(kind)} | {_cell(default)} | {_escape(text)} |" for name, kind, default, text in rows]
    return "\n".join(["| field | type | default | |", "|---|---|---|---|", *lines])


def _default(value: ast.expr) -> str:
    text = ast.unparse(value)
    factory = re.fullmatch(r"field\(default_factory=(\w+)\)", text)
    return f"{factory[1]}()" if factory else text


def _cell(text: str) -> str:
    return f"`{_escape(text)}`" if text else ""


def _escape(text: str) -> str:
    return text.replace("|", "\\|")


def method_list(entry: Entry, node: ast.ClassDef) -> str:
    """Public methods and properties, an item each."""
    lines = []
    for method in node.body:
        if not isinstance(method, ast.FunctionDef) or method.name.startswith("_"):
            continue
        marks = {ast.unparse(decorator) for decorator in method.decorator_list}
        if "property" in marks:
            shape = comment_of_header(entry.source, method)
            head = f"`.{method.name}`" + (f" {shape}" if shape else "")
        else:
            head = f"`.{signature(method, bound='staticmethod' not in marks, wide=True)}`"
        text = " ".join(paragraph for paragraph in description(ast.get_docstring(method) or "") if paragraph)
        lines.append(f"- {head}" + (f": {text}" if text else ""))
    return "\n".join(lines)


def comment_of_header(source: list[str], method: ast.FunctionDef) -> str:
    """The shape in the comment behind `def name(self) -> np.ndarray:`."""
    return comment(source[: method.body[0].lineno - 1], ast.Pass(lineno=method.lineno, end_lineno=method.lineno))


def main(arguments: Iterable[str]) -> None:
    text = page()
    if "--check" in arguments:
        if PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/api.md is out of date: run `make docs`")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
