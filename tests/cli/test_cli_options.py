"""The option dataclasses are the options of the commands: all of them, by one name, with the field's text as help."""

import io
import re
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest
from failing import fails_in_one_line

import proba
from proba import api
from proba.cli import COMMANDS, main
from proba.cli.settings import RARE, SHORT, field_docs
from proba.matching import MatchOptions, PairOptions, VerifyOptions
from proba.pipeline import SolveOptions


def shown(capsys, monkeypatch, *argv):
    """The text of a help page on a terminal of 100 columns."""
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as exit_info:
        main(list(argv))
    assert exit_info.value.code == 0
    return capsys.readouterr().out


def leaves(options, prefix=""):
    """Names of all options in a tree of dataclasses."""
    for entry in fields(options):
        value, short = getattr(options, entry.name), SHORT.get(f"{type(options).__name__}.{entry.name}")
        dashed = f"{prefix}{entry.name.replace('_', '-')}"
        if short:
            yield short
        elif is_dataclass(value):
            yield from leaves(value, f"{dashed}.")
        elif isinstance(value, tuple) and value and is_dataclass(value[0]):
            for k, item in enumerate(value):
                yield from leaves(item, f"{dashed}.{k}.")
        elif entry.name == "verify":
            yield from leaves(VerifyOptions(), f"{dashed}.")
        else:
            yield f"{prefix}no-{entry.name.replace('_', '-')}" if value is True else dashed


def option_names(text):
    return set(re.findall(r"--([\w.-]+)", text))


def test_every_setting_is_an_option_of_run(capsys, monkeypatch):
    names = option_names(shown(capsys, monkeypatch, "run", "--help-all"))
    wanted = [*leaves(MatchOptions(), "match."), *leaves(SolveOptions())]
    assert len(wanted) > 150 and len(set(wanted)) == len(wanted)
    assert set(wanted) <= names


@pytest.mark.parametrize("command", ["match", "solve", "refine"])
def test_other_commands_call_the_same_settings_the_same(capsys, monkeypatch, command):
    run, other = (option_names(shown(capsys, monkeypatch, name, "--help-all")) for name in ("run", command))
    assert other - run <= {"list", "jobs", "images", "matches", "help"}
    assert len(other) > 20


def test_help_shows_what_most_people_need_and_where_the_rest_is(capsys, monkeypatch):
    text = shown(capsys, monkeypatch, "run", "--help")
    assert len(text.splitlines()) <= 80
    names = option_names(text)
    common = {"out", "threads", "resume", "quiet", "live"}
    assert (set(SHORT.values()) - RARE) | common <= names and "help-all" in names
    assert not RARE & names and set(SHORT.values()) >= RARE
    assert not [name for name in names if "." in name]
    for group in ("match options", "cameras options", "solver options"):
        assert group in text
    for group in ("graph options", "refine.tracks options"):
        assert group not in text and group in shown(capsys, monkeypatch, "run", "--help-all")


def test_short_names_stand_for_fields_that_exist():
    classes = {cls.__name__: cls for cls in (MatchOptions, PairOptions, SolveOptions)}
    classes |= {entry.default_factory.__name__: entry.default_factory for entry in fields(SolveOptions) if
                is_dataclass(entry.default_factory)}  # fmt: skip
    for place in SHORT:
        owner, _, name = place.partition(".")
        assert name in {entry.name for entry in fields(classes[owner])}, place


def test_every_setting_explains_itself():
    def classes(cls):
        yield cls
        for entry in fields(cls):
            if is_dataclass(entry.default_factory):
                yield from classes(entry.default_factory)

    for cls in (*classes(MatchOptions), *classes(SolveOptions)):
        leaves = {entry.name for entry in fields(cls) if not is_dataclass(entry.default_factory)}
        assert leaves <= set(field_docs(cls)) and cls.__doc__, cls


@pytest.fixture
def asked(monkeypatch):
    """What the commands ask the library for, instead of doing it."""
    calls = {}

    class Enough(proba.ProbaError):
        """Nothing is done."""

    def instead(name):
        def function(*arguments, **keywords):
            calls[name] = (arguments, keywords)
            raise Enough("enough")

        return function

    for name in ("reconstruct", "match", "solve"):
        monkeypatch.setattr(api, name, instead(name))
    return calls


def test_run_asks_for_what_the_command_line_says(asked, tmp_path):
    words = (
        "--matcher sift --masks masks --weights w.pth --densify --pairs sequential --pairs-file pairs.txt "
        "--graph-matcher loftr --match.graph-weights l.ckpt "
        "--match.pairs.window 4 --match.verify.min-inliers 20 --match.no-triplets --pair-filter os.path:join "
        "--seed 3 --share all --focal init --hypotheses cold --graph.n-neig 5 --solver.iterations 300 "
        "--solver.outlier-margin None --solver.keep 0.5 2 --solver.step-sizes.beta1 0.8 --longer 1 "
        "--threads 1 --resume --quiet"
    )
    with pytest.raises(SystemExit):
        main(["run", "photos", "-o", str(tmp_path / "out"), *words.split()])
    (images,), keywords = asked["reconstruct"]
    assert images == Path("photos") and keywords["out"] == tmp_path / "out"
    assert keywords["threads"] == 1 and keywords["resume"] is True
    match, options = keywords["match"], keywords["options"]
    assert match == MatchOptions(
        matcher="sift", masks=Path("masks"), weights=Path("w.pth"), densify=True, triplets=False,
        pairs=PairOptions(mode="sequential", file=Path("pairs.txt"), window=4), verify=VerifyOptions(min_inliers=20),
        pair_filter=match.pair_filter, graph_matcher="loftr", graph_weights=Path("l.ckpt"),
    )  # fmt: skip
    assert match.pair_filter.__name__ == "join"
    assert options == SolveOptions(
        seed=3,
        longer=1,
        cameras=proba.CameraOptions(share="all", focal="init"),
        graph=proba.GraphOptions(n_neig=5),
        solver=proba.SolverOptions(
            hypotheses="cold", iterations=300, outlier_margin=None, keep=((0.5, 2),),
            step_sizes=proba.StepSizes(beta1=0.8),
        ),
    )  # fmt: skip


def test_without_options_commands_ask_for_the_defaults(asked, tmp_path):
    out = str(tmp_path / "out")
    for argv in (["run", "photos"], ["match", "photos"], ["solve", "m.h5"]):
        with pytest.raises(SystemExit):
            main([*argv, "--out", out, "--quiet"])
    assert asked["reconstruct"][1]["match"] == asked["match"][1]["options"] == MatchOptions()
    assert asked["reconstruct"][1]["options"] == asked["solve"][1]["options"] == SolveOptions()


@pytest.mark.parametrize(
    "words, told",
    [
        ("--seed -1", "seed"),
        ("--threads 0", "--threads"),
        ("--matcher nope", "no matcher 'nope'"),
        ("--masks nowhere", "no masks folder"),
        ("--weights nowhere.pth", "no weights file"),
        ("--pairs-file nowhere.txt", "no pairs file"),
        ("--pair-filter nowhere:function", "cannot be loaded"),
        ("--pair-filter os:sep", "not a function"),
        ("--cameras.focal-prior-sigma 0", "focal_prior_sigma"),
    ],
)
def test_wrong_values_are_refused_before_any_work(capsys, tmp_path, words, told):
    (tmp_path / "photos").mkdir()
    out = tmp_path / "out"
    assert told in fails_in_one_line(capsys, "run", str(tmp_path / "photos"), "--out", str(out), *words.split())
    assert not out.exists()


def test_photos_that_are_not_there_are_missed_before_any_work(capsys, tmp_path):
    out = tmp_path / "out"
    for name in ("nowhere", "nowhere.mp4"):
        for command in ("run", "match"):
            assert name in fails_in_one_line(capsys, command, str(tmp_path / name), "--out", str(out))
    assert not out.exists()


def test_commands_are_outlined_in_one_screen(capsys, monkeypatch):
    text = shown(capsys, monkeypatch, "--help")
    assert set(COMMANDS) <= set(re.findall(r"[a-z]+", text)) and len(text.splitlines()) <= 40


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("run photos --out x --sed 3", "--sed is not an option (did you mean --seed?). See proba run --help"),
        ("run photos --ou x", "--ou is not an option (did you mean --out?); missing: --out PATH"),
        ("run photos --out x --itrations 3 --foo", "--itrations is not an option (did you mean --solver.iterations?)"),
        ("run photos --out x --qqq", "--qqq is not an option. See proba run --help"),
        ("run photos more --out x", "nothing is expected here: more"),
        ("run", "missing: PATH (folder of photos), --out PATH. See proba run --help"),
        ("run photos --out", "-o/--out needs a value. See proba run --help"),
        ("run photos --out x --seed abc", "--seed: 'abc' is not a whole number"),
        ("run photos --out x --memory abc", "--memory: 'abc' is not a number"),
        ("run photos --out x --focal abc", "--focal cannot be abc; choose from 'free', 'init', 'fixed'"),
        ("runn photos", "proba has no command runn; did you mean proba run? See proba --help"),
        ("--nothing", "proba has no command --nothing; it has run, match, "),
        ("bench reel", "proba bench has no command reel; did you mean proba bench real?"),
        ("bench real --jason x", "--jason is not an option (did you mean --json?); missing: --data PATH"),
        ("bench synthetic --seeds a", "--seeds cannot be 'a'. See proba bench synthetic --help"),
    ],
)
@pytest.mark.parametrize(("columns", "encoding"), [("60", "utf-8"), ("200", "utf-8"), ("100", "ascii")])
def test_wrong_usage_is_one_line_with_a_hint(capsys, monkeypatch, words, says, columns, encoding):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding=encoding))
    assert says in fails_in_one_line(capsys, *words.split())
