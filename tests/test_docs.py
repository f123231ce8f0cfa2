"""The documents say what is so: links lead somewhere, and commands, options, names and targets exist."""

import ast
import contextlib
import functools
import importlib
import io
import re
import runpy
from pathlib import Path

import pytest

import proba
from proba.cli import COMMANDS, main
from proba.cli.bench import BENCHMARKS

ROOT = Path(__file__).resolve().parents[1]
API = ROOT / "docs" / "api.md"  # made from the docstrings
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {API})
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
every_page = pytest.mark.parametrize("page", PAGES, ids=IDS)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
INDENTED = re.compile(r"^ {4}\S.*$", re.M)
INLINE = re.compile(r"`([^`\n]+)`")
COMMAND = re.compile(r"(?:^|[\s/])proba ((?:bench )?[a-z]+)((?: [^#\n]*)?)")


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", text)


def code(text: str) -> list[str]:
    """Lines of code of a page: in fences, indented, and within sentences."""
    fenced = [line for language, block in FENCE.findall(text) if language != "python" for line in block.splitlines()]
    rest = prose(text)
    return fenced + [line.strip() for line in INDENTED.findall(rest)] + INLINE.findall(rest)


def slug(heading: str) -> str:
    """The anchor of a heading on GitHub."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", prose(page.read_text(encoding="utf-8")), re.M)}


@functools.cache
def help_of(command: str) -> str:
    """The help of a command with all its options, on one line, without its frames."""
    out = io.StringIO()
    for every in ("--help", "--help-all"):
        if every in out.getvalue() or every == "--help":
            with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
                main([*command.split(), every])
    return re.sub(r"[│\s]+", " ", out.getvalue())


def flags(command: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w.-]*", help_of(command)))


def choices(command: str, flag: str) -> set[str] | None:
    """What an option may be, where its help lists that."""
    found = re.search(re.escape(flag) + r" \{([^}]*)\}(?!\|)", help_of(command))
    return {word.strip() for word in found[1].split(",")} if found else None


@every_page
def test_links_lead_somewhere(page):
    text = prose(page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}"


def check_commands(line: str, place: str) -> None:
    """Every `proba ...` in a line names a command, options that it has, and choices that they offer."""
    for command, rest in COMMAND.findall(line):
        assert command.split()[0] in COMMANDS, f"{place}: {line}"
        known = flags(command)
        words = rest.split()
        for k, word in enumerate(words):
            if not re.fullmatch(r"--?[a-z][\w.-]*", word):
                continue
            assert word in known, f"{place}: {line}: no option {word}"
            allowed = choices(command, word)
            if allowed and k + 1 < len(words):
                assert words[k + 1].strip("`'\".,;:)") in allowed, f"{place}: {line}"


@every_page
def test_commands_and_their_options_exist(page):
    for line in code(page.read_text(encoding="utf-8")):
        check_commands(line, page.name)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_commands_in_examples_exist(example):
    for line in (ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or "").splitlines():
        check_commands(line.replace("`", " "), example.name)


@every_page
def test_options_that_stand_alone_exist(page):
    """`--focal fixed` in a sentence: some command has it, and such a choice."""
    everything = [*(name for name in COMMANDS if name != "bench"), *(f"bench {name}" for name in BENCHMARKS)]
    for line in code(page.read_text(encoding="utf-8")):
        if line.startswith("--"):
            flag, *values = line.split()
            having = [command for command in everything if flag in flags(command)]
            assert having, f"{page.name}: {line}"
            allowed = [choices(command, flag) for command in having]
            if values and all(allowed):
                assert any(values[0] in some for some in allowed), f"{page.name}: {line}"


@every_page
def test_python_is_python_and_its_names_exist(page):
    for language, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if language != "python":
            continue
        tree = ast.parse(block)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "proba":
                module = importlib.import_module(node.module)
                for name in node.names:
                    assert hasattr(module, name.name), f"{page.name}: {node.module}.{name.name}"
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "proba":
                assert hasattr(proba, node.attr), f"{page.name}: proba.{node.attr}"


@every_page
def test_make_targets_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for line in code(page.read_text(encoding="utf-8")):
        if found := re.match(r"make ([a-z-]+)", line):
            assert found[1] in targets, f"{page.name}: {line}"


@every_page
def test_files_of_the_source_exist(page):
    for line in INLINE.findall(prose(page.read_text(encoding="utf-8"))):
        if re.fullmatch(r"[\w/]+\.py", line) and "/" in line:
            assert (ROOT / line).exists() or (ROOT / "src" / "proba" / line).exists(), f"{page.name}: {line}"


@every_page
def test_plain_words(page):
    text = page.read_text(encoding="utf-8").lower()
    for phrase in ("one a piece", "one a camera", "one a pair", "so many", "by so much"):
        assert phrase not in text, f"{page.name}: {phrase}"


def test_every_picture_is_shown():
    shown = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    pictures = [path for kind in ("jpg", "png", "gif", "svg") for path in (ROOT / "docs").rglob(f"*.{kind}")]
    assert pictures and not [
        path.name for path in pictures if f"/{path.name})" not in shown and f"({path.name})" not in shown
    ]


def test_reference_is_up_to_date():
    make_api = runpy.run_path(str(ROOT / "docs" / "make_api.py"))
    assert API.read_text(encoding="utf-8") == make_api["page"](), "docstrings have changed: run `make docs`"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 120


def test_layout_names_every_room():
    """The layout in CONTRIBUTING.md lists all packages and modules, and none that is gone."""
    (layout,) = re.findall(
        r"^    src/proba/\n((?:^ {6}.*\n)+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.M
    )
    listed = {
        name.rstrip("/") for line in layout.splitlines() for name in re.findall(r"[a-z_]+(?:/|\.py)(?=[, ])", line)
    }
    there = {path.name for path in (ROOT / "src" / "proba").iterdir() if not path.name.startswith("_")} - {"py.typed"}
    assert listed == there
