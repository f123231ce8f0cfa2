"""`proba bench`: the measurements behind the claims."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from proba.bench.experiments import EXPERIMENTS
from proba.cli.settings import with_tidy_help
from proba.cli.usage import check_command, read_arguments
from proba.errors import InputError
from proba.threads import set_threads

if TYPE_CHECKING:
    from proba.bench.experiment import Experiment, RunOptions

CACHE = Path("bench-out/cache")
RESULTS = Path("bench-out/results")


def kernel(json: Path | None = None, threads: int | None = None) -> None:
    """Matches per second of the fused kernel against the torch reference, eager and compiled.

    Args:
        json: Write the numbers to this file.
        threads: Processor threads; all by default.
    """
    from proba.bench.kernel import main

    set_threads(threads)
    main(_file(json))


def synthetic(
    json: Path | None = None,
    scenes: tuple[str, ...] = ("object", "ring", "room", "facade", "corridor"),
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4),
    outliers: tuple[float, ...] = (0.0, 0.1, 0.3),
    threads: int | None = None,
) -> None:
    """Pose accuracy on synthetic scenes with exact truth.

    Args:
        json: Write the numbers to this file after every run; runs it already holds are not repeated.
        scenes: Which scenes.
        seeds: Which seeds; scene, cameras, true field of view and noise depend on it.
        outliers: Shares of gross outliers.
        threads: Processor threads; all by default.
    """
    from proba.bench.synthetic import main

    set_threads(threads)
    main(_file(json), scenes=scenes, seeds=seeds, outliers=outliers)


def scaling(
    json: Path | None = None, sizes: tuple[int, ...] = (10, 30, 100, 300, 1000), threads: int | None = None
) -> None:
    """Time and memory of the solver by number of images, with a plot.

    Args:
        json: Write the numbers to this file.
        sizes: Numbers of images.
        threads: Processor threads; all by default.
    """
    from proba.bench.scaling import main

    main(_file(json), sizes=sizes, threads=set_threads(threads))


def scale(
    json: Path | None = None,
    sizes: tuple[int, ...] = (100, 300, 1000, 3000),
    seed: int = 0,
    threads: int | None = None,
    clusters: int | Literal["auto", "off"] = "auto",
    workers_images: int = 120,
) -> None:
    """Time, memory and accuracy of whole runs after matching, on synthetic cities, and the power of edges they grow by.

    Args:
        json: Write the numbers to this file after every size; sizes it already holds are not repeated.
        sizes: Numbers of images.
        seed: Seed of the cities and of the runs.
        threads: Processor threads; all by default.
        clusters: Clusters that cities are divided into, as in `proba solve`.
        workers_images: Images of a city in four clusters on which two local workers of one thread each are compared
            with one; 0 leaves that out. It needs Dask.
    """
    from proba.bench.scale import main

    main(
        _file(json), sizes=sizes, threads=set_threads(threads), seed=seed, clusters=clusters,
        workers_images=workers_images,
    )  # fmt: skip


def real(
    data: Path,
    json: Path | None = None,
    sets: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (0, 1, 2),
    hypotheses: tuple[Literal["portfolio", "cold"], ...] = ("portfolio",),
    matcher: str = "auto",
    colmap: bool = True,
    perfect: bool = False,
    cache: Path = CACHE,
    threads: int | None = None,
) -> None:
    """Photos with ground truth: ProBA and COLMAP (incremental, global) side by side.

    Args:
        data: Folder of sets, each with images/ and gt.json, or one such set.
        json: Write the numbers to this file after every run, and a Markdown table beside it; runs it already holds
            are not repeated.
        sets: Only sets whose name holds one of these.
        seeds: Seeds of ProBA; COLMAP gets the first.
        hypotheses: portfolio, cold, or both.
        matcher: Which matcher, see `proba match --list`.
        colmap: Run COLMAP too.
        perfect: Give the solver only matches that agree with the truth, to tell its faults from the matcher's.
        cache: Matches and databases are kept here.
        threads: Processor threads; all by default.
    """
    from proba.bench.real import RealOptions, main

    options = RealOptions(
        seeds=seeds, hypotheses=hypotheses, matcher=matcher, colmap=colmap, perfect=perfect, cache=cache,
        threads=set_threads(threads),
    )  # fmt: skip
    main(data, _file(json), sets, options)


def stress(
    data: Path,
    json: Path | None = None,
    sets: tuple[str, ...] = (),
    kinds: tuple[
        Literal["few", "mixture", "strangers", "turned", "zoomed", "cropped", "darkened", "turntable"], ...
    ] = (
        "few",
        "mixture",
        "strangers",
        "turned",
        "zoomed",
        "cropped",
        "darkened",
    ),
    draws: tuple[int, ...] = (0,),
    mixtures: int = 10,
    side: int = 512,
    seeds: tuple[int, ...] = (0,),
    out: Path = Path("bench-out/stress"),
    threads: int | None = None,
) -> None:
    """Folders with exact truth made for the weak places: few photos, two sets mixed, strangers, turned photos.

    Args:
        data: Folder of sets, each with images/ and gt.json.
        json: Write the numbers to this file after every run, and Markdown tables beside it; runs it already holds are
            not repeated.
        sets: Only sets whose name holds one of these.
        kinds: Which kinds of folders.
        draws: Numbers of the random draws; each makes another folder of every kind.
        mixtures: Pairs of sets that are mixed at most, the same ones every time.
        side: Photos are reduced to this longest side, pixels.
        seeds: Seeds of the solver.
        out: The folders and their matches are kept here.
        threads: Processor threads; all by default.
    """
    from proba.bench.stress import main

    main(
        data, _file(json), sets, kinds=kinds, draws=draws, mixtures=mixtures, side_px=side, seeds=seeds, out=out,
        threads=set_threads(threads),
    )  # fmt: skip


def collections(
    data: Path,
    json: Path | None = None,
    sets: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (0, 1, 2),
    colmap: bool = True,
    cache: Path = Path("bench-out/collections"),
    threads: int | None = None,
) -> None:
    """Mixed folders (several scenes, strangers, look-alikes) by the rules of the Image Matching Challenge 2025.

    Args:
        data: Folder of collections, each with images/, labels.csv and thresholds.csv, or one such collection.
        json: Write the numbers to this file after every run, and a Markdown table beside it; runs it already holds
            are not repeated.
        sets: Only collections whose name holds one of these.
        seeds: Seeds of ProBA; COLMAP gets the first.
        colmap: Run COLMAP too.
        cache: Matches and databases are kept here.
        threads: Processor threads; all by default.
    """
    from proba.bench.collections import main

    main(data, _file(json), sets, seeds=seeds, colmap=colmap, cache=cache, threads=set_threads(threads))


def diagnose(
    data: Path,
    out: Path = Path("bench-out/diagnosis"),
    hypotheses: Literal["portfolio", "cold"] = "portfolio",
    seed: int = 0,
    matcher: str = "auto",
    perfect: bool = False,
    cache: Path = CACHE,
    threads: int | None = None,
) -> None:
    """Every hypothesis of one set: loss, errors before and after the refinement, mirror states, residuals, a picture.

    Args:
        data: A set: a folder with images/ and gt.json.
        out: Folder for diagnosis.json and diagnosis.png.
        hypotheses: portfolio or cold.
        seed: Seed of the solver.
        matcher: Which matcher, see `proba match --list`.
        perfect: Give the solver only matches that agree with the truth, to tell its faults from the matcher's.
        cache: Matches are kept here.
        threads: Processor threads; all by default.
    """
    from proba.bench.diagnosis import main
    from proba.bench.photo_sets import find_sets
    from proba.bench.real import RealOptions

    photos, *others = find_sets(data)
    if others:
        names = ", ".join(found.name for found in (photos, *others))
        raise InputError(f"{data} holds several sets ({names}); give --data one of them")
    options = RealOptions(matcher=matcher, perfect=perfect, cache=cache, threads=set_threads(threads))
    main(photos, out, hypotheses, seed, options)


def matchers(
    data: Path | None = None,
    out: Path = RESULTS,
    sets: tuple[str, ...] = (),
    matchers: tuple[str, ...] = (),
    max_pairs: int | None = None,
    densify: bool = False,
    solve: bool = True,
    quick: bool = False,
    retry: bool = False,
    threads: int | None = None,
) -> None:
    """ProBA with each matcher: its matches against the truth, and what becomes of them.

    Args:
        data: Folder of sets, each with images/ and gt.json; $PROBA_DATA by default.
        out: Folder for matchers.json, matchers.md and matchers.png; rows it already holds are not repeated.
        sets: Only sets whose name holds one of these.
        matchers: Which matchers, see `proba match --list`; by default those that need no download.
        max_pairs: Pairs of each set at most, drawn once; for matchers that take seconds for a pair.
        densify: Measure each matcher once more with its matches densified.
        solve: Also reconstruct from the matches.
        quick: Two small sets.
        retry: Compute rows that failed again.
        threads: Processor threads; all by default.
    """
    from proba.bench.experiments.matchers import with_choice

    options = _options(data=data, sets=sets, quick=quick, threads=threads)
    if options.data is None:
        raise InputError("give --data FOLDER with one folder a set (images/ and gt.json), or set PROBA_DATA")
    _run(with_choice(matchers, max_pairs, densify, solve), out, options, retry)


def results(
    data: Path | None = None,
    out: Path = RESULTS,
    page: Path = Path("docs/results.md"),
    fill: tuple[Path, ...] = (Path("README.md"), Path("docs/benchmarks.md")),
    only: tuple[str, ...] = (),
    minutes: float = 90.0,
    full: bool = False,
    real: Path | None = None,
    cache: Path = CACHE,
    threads: int | None = None,
) -> None:
    """All experiments, and the page with their tables and pictures (`make results`).

    Args:
        data: Folder of photo sets with truth (`proba bench datasets`); $PROBA_DATA by default. Without it only
            synthetic scenes are used, and the page says what is missing.
        out: Folder for the rows of all experiments; those it already holds are not repeated.
        page: The page to write; its pictures go to images/results beside it.
        fill: Pages with marked blocks that are filled from the same rows.
        only: Compute only these experiments; the page has all.
        minutes: No row begins after this time; 0: nothing is computed, the page is made from the rows that are there.
        full: The full version of every experiment, which takes many hours.
        real: A JSON of `proba bench real` by this version; its rows need not be computed again.
        cache: Matches and databases are kept here.
        threads: Processor threads; all by default.
    """
    from proba.bench.results_page import make_results

    options = _options(data=data, quick=not full, cache=cache, threads=threads)
    make_results(out, page, fill, options, only=only, minutes=minutes, real=real)
    print(f"wrote {page}")


def gate(
    data: Path | None = None,
    baseline: Path = Path("docs/baseline.json"),
    out: Path = Path("bench-out/gate"),
    full: bool = False,
    update: bool = False,
    resume: bool = False,
    real: Path | None = None,
    colmap: bool = True,
    sets: tuple[str, ...] = (),
    seeds: tuple[int, ...] = (),
    threads: int | None = None,
) -> None:
    """Compare this version with the committed baseline; exit code 1 and a table where something is lost.

    Args:
        data: Folder of photo sets with truth (`proba bench datasets`); $PROBA_DATA by default. Without it only
            synthetic scenes are compared.
        baseline: The committed numbers.
        out: Folder for the rows of this run, and for its matches, which are made anew.
        full: All photo sets and three seeds instead of four small sets and two.
        update: Write the numbers of this run to the baseline instead.
        resume: Keep the rows that an earlier run of this version has left.
        real: A JSON of `proba bench real` by this version; its rows need not be computed again.
        colmap: Run COLMAP too; without it no times are compared.
        sets: Only sets whose name holds one of these.
        seeds: Seeds instead of the gate's own.
        threads: Processor threads; all by default.
    """
    import shutil

    from proba.bench.baseline_gate import compare, findings_table, load_baseline, run_gate, save_baseline, summarise

    kind, cache = "full" if full else "quick", out / "cache"
    before = {} if update else load_baseline(baseline, kind)
    if not resume and cache.is_dir():
        shutil.rmtree(cache)
    options = _options(data=data, quick=not full, sets=sets, seeds=seeds, cache=cache, threads=threads)
    now = summarise(run_gate(out, options, resume=resume, real=real, colmap=colmap))
    if update:
        save_baseline(baseline, kind, now, options.threads)
        print(f"wrote {baseline} ({kind})")
        return
    findings = compare(before, now)
    print(findings_table(findings))
    if any(finding.verdict == "lost" for finding in findings):
        raise SystemExit(1)


def datasets() -> None:
    """Datasets whose published layouts are read: where each comes from, its licence, its files. Nothing downloads."""
    from proba.io.datasets import LAYOUTS

    for layout in LAYOUTS:
        print(f"{layout.name}: {layout.title}\n  from     {layout.source}\n  licence  {layout.licence}")
        print("".join(f"           {line}\n" for line in layout.tree.splitlines()))
    print("Any other set: SET/images/ and SET/gt.json (docs/conventions.md).")


def _command(name: str, summary: str) -> Callable[..., None]:
    """The command of an experiment."""

    def command(
        data: Path | None = None,
        out: Path = RESULTS,
        quick: bool = False,
        sets: tuple[str, ...] = (),
        seeds: tuple[int, ...] = (),
        retry: bool = False,
        cache: Path = CACHE,
        threads: int | None = None,
    ) -> None:
        from proba.bench.experiments import load_experiment

        options = _options(data=data, sets=sets, seeds=seeds, quick=quick, cache=cache, threads=threads)
        _run(load_experiment(name), out, options, retry)

    command.__doc__ = f"""{summary}

    Args:
        data: Folder of photo sets with truth (`proba bench datasets`); $PROBA_DATA by default. Without it only
            synthetic scenes are used.
        out: Folder for {name}.json, {name}.md and {name}.png; rows it already holds are not repeated.
        quick: The small version, as in `make results`.
        sets: Only sets whose name holds one of these, instead of the experiment's own choice.
        seeds: Seeds instead of the experiment's own.
        retry: Compute rows that failed again.
        cache: Matches and databases are kept here.
        threads: Processor threads; all by default.
    """
    return command


def _options(*, data: Path | None, threads: int | None, **others: Any) -> RunOptions:
    from proba.bench.experiment import RunOptions, data_folder

    return RunOptions(data=data_folder(data), threads=set_threads(threads), **others)


def _run(experiment: Experiment, out: Path, options: RunOptions, retry: bool) -> None:
    from proba.bench.runner import run

    run(experiment, out, options, retry=retry)
    print((out / f"{experiment.name}.md").read_text(encoding="utf-8"))
    print(f"wrote {out}/{experiment.name}.json, .md and .png")


BENCHMARKS: dict[str, Callable[..., None]] = {
    "kernel": kernel,
    "synthetic": synthetic,
    "scaling": scaling,
    "scale": scale,
    "real": real,
    "collections": collections,
    "stress": stress,
    "diagnose": diagnose,
    "datasets": datasets,
    "results": results,
    "gate": gate,
    **{name: _command(name, summary) for name, summary in EXPERIMENTS.items()},
    "matchers": matchers,
}


def main(argv: Annotated[list[str], tyro.conf.Positional], /) -> None:
    """Measure speed and accuracy on this machine: `proba bench --help`."""
    if not argv or argv[0] in ("-h", "--help"):
        tyro.extras.subcommand_cli_from_dict(BENCHMARKS, prog="proba bench", args=["--help"])
    check_command(argv[0], BENCHMARKS, prog="proba bench")
    read_arguments(with_tidy_help(BENCHMARKS[argv[0]]), prog=f"proba bench {argv[0]}", argv=argv[1:])()


def _file(json: Path | None) -> Path | None:
    if json:
        json.parent.mkdir(parents=True, exist_ok=True)
    return json
