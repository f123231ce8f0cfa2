"""The shape of the source: imports look down, a name is used once, functions fit on a screen."""

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import proba

ROOT = Path(proba.__file__).parent

LAYERS = (  # bottom to top; a module imports its own package and what lies below, never a neighbour of its layer
    ("_version", "errors"),
    ("jit", "memory", "threads"),
    ("geometry",),
    ("known_poses", "matches", "reconstruction"),
    ("cameras", "graph", "objective", "point_cloud", "rigs", "subpixel"),
    ("kernels", "solution"),
    ("io",),
    ("tasks",),
    ("dense", "matching", "solver", "synthetic"),
    ("refine", "scenes"),
    ("solve_options",),
    ("pipeline", "presets"),
    ("align", "evaluation", "export", "history", "localize", "report"),
    ("clusters",),
    ("api",),
    ("combine", "viewer"),
    ("bench",),
    ("cli",),
    ("__init__", "__main__"),
)
LAYER_OF = {name: height for height, names in enumerate(LAYERS) for name in names}

UPWARD = {  # who may reach up, and why
    ("reconstruction", "dense"): "methods of Reconstruction that load their work when they are called",
    ("reconstruction", "export"): "methods of Reconstruction that load their work when they are called",
    ("reconstruction", "io"): "methods of Reconstruction that load their work when they are called",
}
SHARED_STEMS = {"__init__", "options", "colmap", "maps", "poses", "scene", "worlds"}
"""File names that packages share. Add none: a name that stands once is found at once."""
FLAGLESS = ("geometry", "graph", "kernels", "objective")
MAX_LINES = 60
LONG = {"kernels/cuda.py:_edge_sums"}  # compiled as a whole


@cache
def sources() -> dict[str, ast.Module]:
    """Parsed modules by their path below the package."""
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")}


def room(path: str) -> str:
    """The package, or module at the top, that a file belongs to."""
    return path.partition("/")[0].removesuffix(".py")


def imported(node: ast.AST) -> list[str]:
    """Modules or names of this package that a statement imports, e.g. `io.ply.read_ply`."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are written in full"
        names = [f"{node.module}.{alias.name}" for alias in node.names]
    else:
        return []
    return [name.removeprefix("proba.") for name in names if name.startswith("proba.")]


def imports() -> list[tuple[str, str, str]]:
    """Importing room, imported room, and the place in the source."""
    found = []
    for path, tree in sources().items():
        for node in ast.walk(tree):
            for name in imported(node):
                target = name.partition(".")[0]
                found.append((room(path), target, f"src/proba/{path}:{getattr(node, 'lineno', 0)} imports {name}"))
    return found


def test_every_room_has_a_layer():
    rooms = {room(path) for path in sources()}
    assert rooms == set(LAYER_OF), "name new packages in LAYERS, and take out those that are gone"
    assert {target for _, target, _ in imports()} <= rooms


def test_imports_look_down():
    wrong = [
        place
        for source, target, place in imports()
        if source != target and LAYER_OF[target] >= LAYER_OF[source] and (source, target) not in UPWARD
    ]
    assert not wrong, "\n".join(wrong)


def test_upward_reaches_are_used_and_wait_for_a_call():
    """An import inside a function runs when that is called, when both modules are there."""
    reached = {(source, target) for source, target, _ in imports()}
    assert set(UPWARD) <= reached, "take out what nobody needs any more"
    at_the_top = {
        (room(path), name.partition(".")[0])
        for path, tree in sources().items()
        for node in tree.body
        for name in imported(node)
    }
    assert not at_the_top & set(UPWARD)


def test_the_solver_writes_only_through_the_atomic_writer():
    reached = {name for path, tree in sources().items() if room(path) == "solver" for node in ast.walk(tree)
               for name in imported(node) if name.startswith("io.")}  # fmt: skip
    assert {name.rpartition(".")[0] for name in reached} <= {"io.atomic", "io.npz", "io.reading"}, reached


def test_no_two_modules_share_a_name():
    """Commands are named as the user types them, whatever else has that name."""
    stems = Counter(Path(path).stem for path in sources() if room(path) != "cli")
    shared = {stem for stem, count in stems.items() if count > 1}
    assert shared <= SHARED_STEMS, f"rename one each: {sorted(shared - SHARED_STEMS)}"
    assert shared >= SHARED_STEMS, f"no longer shared: {sorted(SHARED_STEMS - shared)}"


def test_no_two_option_classes_share_a_name():
    names = Counter(
        node.name
        for tree in sources().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.name.endswith("Options")
    )
    assert not [name for name, count in names.items() if count > 1]


def test_lower_layers_know_no_command_line():
    flags = re.compile(r"(?<![\w-])--[a-z]")
    told = [
        f"src/proba/{path}:{node.lineno}: {node.value!r}"
        for path, tree in sources().items()
        if room(path) in FLAGLESS
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and flags.search(node.value)
    ]
    assert not told, "\n".join(told)


def test_functions_fit_on_a_screen():
    long = {}
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MAX_LINES:
                    long[f"{path}:{node.name}"] = lines
    assert set(long) <= LONG, {name: lines for name, lines in long.items() if name not in LONG}
