"""Compares a new run with a committed one, so that later work cannot lose what was won.

A number is lost where it is worse than the baseline by more than the seeds scatter. Times are compared as a ratio to
COLMAP's in the same run, because machines differ.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from proba.bench.experiment import Row, RunOptions, grouped, score, table
from proba.bench.measure import DEFAULT, Source, regime, solve_and_score
from proba.bench.methods import COLMAP, PROBA, method_rows, of_one_run, rows_of_real, with_rows
from proba.bench.runner import compute, load_list, machine, one_line
from proba.errors import InputError
from proba.io.atomic import atomic_write_text
from proba.io.reading import read_json, reading, real_number

SCENES = ("object", "room")
QUICK_SETS = ("strecha_herzjesu_p8", "strecha_entry_p10", "middlebury_temple_sparse", "eth3d_pipes")
LEFT_OUT = ("mip360_bonsai", "tum_fr1_desk", "7scenes")
"""Sets that are too long for a gate."""
LEAST_SCATTER = 1.0
"""Percentage points of AUC that are never called a loss: other processors round differently."""
SCATTERS = 2.0
"""A loss is more than this many times the standard deviation over the seeds of the baseline."""
SLOWER = 1.3
"""A ratio of times may grow by this factor: both sides of it are measured once."""
AREAS = ("auc@1", "auc@5")
Verdict = Literal["lost", "kept", "gained", "missing"]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One number of one set, before and now."""

    name: str
    what: str
    before: float
    limit: float
    """What it may not cross."""
    now: float | None
    verdict: Verdict


def plan(options: RunOptions, *, colmap: bool = True) -> list[Row]:
    """Synthetic scenes, and photo sets with ProBA from several seeds and COLMAP's incremental mapper from one."""
    seeds = options.seeds_or((0, 1), (0, 1, 2))
    rows = [
        Row(
            settings={"set": name, "dataset": "synthetic", "method": PROBA + DEFAULT, "seed": seed},
            work=run_scene,
            arguments=(name, seed, options),
        )
        for name in SCENES
        for seed in seeds
    ]
    for photos in options.photo_sets(QUICK_SETS if options.quick else ()):
        if options.sets or not any(word in photos.name for word in LEFT_OUT):
            rows += method_rows(photos, (DEFAULT,), seeds, options, ("incremental",) if colmap else ())
    return rows


def run_scene(name: str, seed: int, options: RunOptions) -> dict:
    """A small synthetic scene."""
    matches, truth = Source(name=name).load(seed, options)
    return solve_and_score(matches, truth, regime(DEFAULT, seed), cloud=False)


def run_gate(
    out: Path, options: RunOptions, *, resume: bool, real: Path | None = None, colmap: bool = True
) -> list[dict]:
    """All rows, computed anew unless `resume`, since those of an older version say nothing of this one.

    Rows of `proba bench real` in the file `real` are taken over.
    """
    file = out / "gate.json"
    out.mkdir(parents=True, exist_ok=True)
    stored = load_list(file) if resume else []
    return compute(
        plan(options, colmap=colmap),
        with_rows(stored, rows_of_real(real)) if real else stored,
        lambda rows: atomic_write_text(file, json.dumps(rows, indent=1)),
        say=lambda row: print(one_line(row), flush=True),
    )


def summarise(rows: Sequence[dict]) -> dict[str, dict]:
    """What the baseline keeps of each set: mean and scatter of AUC, fewest posed images, and the ratio of times."""
    summary = {}
    for (name,), group in grouped(list(rows), "set").items():
        ours = [row for row in group if row["method"].startswith(PROBA)]
        theirs = [row for row in group if row["method"].startswith(COLMAP)]
        entry: dict[str, Any] = {"posed": int(min(score(row, "registered") for row in ours)), "seeds": len(ours)}
        for key in AREAS:
            values = [score(row, key) for row in ours]
            entry[key] = {"mean": round(float(np.mean(values)), 2), "scatter": round(float(np.std(values)), 2)}
        times, other = ([row["total_s"] for row in some if "total_s" in row] for some in (ours, theirs))
        if times and other and of_one_run(group):
            entry["time_ratio"] = round(float(np.mean(times)) / other[0], 3)
        summary[name] = entry
    return summary


def compare(before: dict[str, dict], now: dict[str, dict]) -> list[Finding]:
    """Every number of the baseline against the new run; a set that was not run is missing, which is no loss."""
    findings = []
    for name, old in before.items():
        new = now.get(name)
        for key in AREAS:
            margin = max(LEAST_SCATTER, SCATTERS * old[key]["scatter"])
            value = None if new is None else new[key]["mean"]
            findings.append(_judged(name, key, old[key]["mean"], old[key]["mean"] - margin, value, margin))
        value = None if new is None else new["posed"]
        findings.append(_judged(name, "posed", old["posed"], old["posed"], value, 0))
        if "time_ratio" in old:
            ratio, value = old["time_ratio"], None if new is None else new.get("time_ratio")
            findings.append(_judged(name, "time / COLMAP", -ratio, -SLOWER * ratio, value and -value, ratio * 0.3))
    return findings


def _judged(name: str, what: str, before: float, limit: float, now: float | None, margin: float) -> Finding:
    """More is better; times come with their sign turned, and leave as they came."""
    verdict: Verdict = "kept"
    if now is None:
        verdict = "missing"
    elif now < limit:
        verdict = "lost"
    elif now > before + margin:
        verdict = "gained"
    before, limit = abs(before), abs(limit)
    return Finding(
        name=name, what=what, before=before, limit=limit, now=None if now is None else abs(now), verdict=verdict
    )


def findings_table(findings: Sequence[Finding]) -> str:
    """What is not as it was, the losses first."""
    order: dict[Verdict, int] = {"lost": 0, "missing": 1, "gained": 2, "kept": 3}
    shown = sorted((f for f in findings if f.verdict != "kept"), key=lambda f: order[f.verdict])
    kept = len(findings) - len(shown)
    body = [(f.name, f.what, f"{f.before:.2f}", f"{f.limit:.2f}", _text(f.now), f.verdict) for f in shown]
    text = table(("set", "what", "baseline", "limit", "now", "verdict"), body) if body else ""
    return f"{text}{kept} of {len(findings)} numbers are kept.\n"


def _text(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def load_baseline(file: Path, kind: str) -> dict[str, dict]:
    """The numbers of the quick or the full gate."""
    if not file.is_file():
        raise InputError(f"there is no baseline {file}; write one with --update")
    with _reading_baseline(file):
        content = _baseline(file)
        if kind not in content:
            raise InputError(f"{file} has no {kind} baseline; write one with --update")
        sets = content[kind]["sets"]
        for name, old in sets.items():
            numbers = [(f"{key} of {name}", old[key][what]) for key in AREAS for what in ("mean", "scatter")]
            numbers += [(f"{key} of {name}", old[key]) for key in ("posed", "time_ratio") if key in ("posed", *old)]
            for what, value in numbers:
                real_number(value, what)
        return sets


def save_baseline(file: Path, kind: str, summary: dict[str, dict], threads: int) -> None:
    """Rewrite the numbers of one kind; the other stays."""
    content = _baseline(file) if file.is_file() else {}
    content[kind] = {"machine": machine(threads), "sets": summary}
    atomic_write_text(file, json.dumps(content, indent=1) + "\n")


def _baseline(file: Path) -> dict:
    """Both kinds of a baseline."""
    with _reading_baseline(file):
        content = read_json(file)
        if not isinstance(content, dict):
            raise ValueError("it is no object")
        return content


def _reading_baseline(file: Path) -> AbstractContextManager[None]:
    return reading(file, "a baseline of the gate", "Write it again with --update (after removing it).")
