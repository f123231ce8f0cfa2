"""ETH3D scene by scene, with the accuracy and completeness of the cloud where there is a scan or depth."""

from __future__ import annotations

from pathlib import Path

from proba.bench.charts import bars
from proba.bench.experiment import Experiment, Quoted, Row, RunOptions, cell, grouped, mean_score, table
from proba.bench.measure import DEFAULT, STRICT
from proba.bench.methods import method_rows

SETS = ("eth3d", "tum_fr1_xyz")
KEYS = {"RRA@5": "rra@5", "RTA@5": "rta@5", "AUC@1": "auc@1", "ACC@5cm": "acc@5cm", "COMP@5cm": "comp@5cm"}


def plan(options: RunOptions) -> list[Row]:
    regimes = (DEFAULT,) if options.quick else (STRICT, DEFAULT)
    found = options.photo_sets(SETS)
    return [row for photos in found for row in method_rows(photos, regimes, options.seeds_or((0,)), options)]


def tables(rows: list[dict]) -> str:
    """A row for each set and method, mean over seeds."""
    body = []
    for (name, method), group in grouped(rows, "set", "method").items():
        clouds = any("acc@5cm" in row for row in group)
        numbers = [None if "cm" in key and not clouds else mean_score(group, key) for key in KEYS.values()]
        posed = min(row.get("registered", 0) for row in group)
        body.append([f"{name}: {method}", f"{posed} of {group[0].get('images', '?')}", *map(cell, numbers)])
    return table(("", "posed", *KEYS), body)


def draw(rows: list[dict], path: Path) -> None:
    """All numbers of the first method."""
    found = grouped(rows, "set", "method")
    series = {name: [mean_score(group, key) for group in found.values()] for name, key in KEYS.items()}
    bars(path, [f"{name} {method}" for name, method in found], series, ylabel="%")


SCENES = (  # RRA@5, RTA@5, ACC, COMP of COLMAP, of VGGT, and of ProBA with DKM
    ("courtyard", 100, 100, 84.9, 7.4, 94.7, 89.5, 92.6, 5.1, 100, 100, 74.1, 29.1),
    ("delivery_area", 54.5, 59.9, 64.3, 5.7, 65.9, 68.2, 90.3, 0.3, 100, 99.6, 79.7, 34.2),
    ("electro", 100, 100, 10.8, 0.5, 100, 93.3, 50.9, 13.9, 95.6, 83.9, 66.0, 55.2),
    ("facade", 100, 98.2, 5.3, 0.3, 98.7, 90.8, 55.7, 6.1, 100, 99.7, 59.8, 19.3),
    ("kicker", 100, 100, 9.3, 0.3, 100, 100, 88.1, 64.5, 100, 98.9, 94.3, 47.1),
    ("meadow", 100, 100, 23.6, 0.1, 100, 86.7, 50.5, 52.0, 100, 52.4, 19.1, 3.7),
    ("office", 100, 98.7, 81.4, 0.5, 100, 96.2, 84.2, 12.8, 77.5, 55.7, 11.0, 1.6),
    ("pipes", 100, 95.2, 67.2, 2.0, 100, 92.9, 98.4, 5.2, 100, 98.9, 93.3, 39.4),
    ("playground", 100, 100, 40.6, 8.5, 97.4, 23.7, 55.6, 8.5, 100, 99.9, 63.1, 63.9),
    ("relief", 100, 100, 96.3, 18.1, 100, 90.3, 40.6, 18.9, 100, 99.8, 93.6, 75.9),
    ("relief_2", 33.3, 33.3, 93.9, 16.2, 93.6, 77.4, 40.5, 44.4, 100, 100, 89.6, 64.6),
    ("terrace", 100, 100, 60.8, 5.5, 100, 100, 88.7, 7.1, 100, 100, 72.4, 68.7),
    ("terrains", 100, 100, 94.0, 10.2, 100, 45.2, 54.7, 45.9, 100, 99.4, 92.5, 69.0),
    ("mean", 91.4, 91.2, 56.3, 5.8, 96.2, 81.1, 68.5, 21.9, 97.9, 91.4, 69.9, 44.0),
)
EXPERIMENT = Experiment(
    name="eth3d",
    title="ETH3D by scene, and clouds against scans",
    about="""ACC@5cm: share of our points within 5 cm of the true surface, after alignment; COMP@5cm: share of the true
surface within 5 cm of our points. They need laser scans or depth images; for a scene without scans they are left out.
TUM RGB-D stands in with the depth of its sensor, which itself errs by a few centimetres. ProBA's cloud is that of
its result, made of matches of SIFT and XFeat; the paper's is made of dense matches.""",
    quoted=(
        Quoted(
            source="the paper, Table 2: RRA@5, RTA@5, ACC@5cm, COMP@5cm of each",
            header=(
                "scene",
                *(
                    f"{method} {name}"
                    for method in ("COLMAP", "VGGT", "ProBA")
                    for name in ("RRA", "RTA", "ACC", "COMP")
                ),
            ),
            rows=SCENES,
        ),
    ),
    plan=plan,
    tables=tables,
    draw=draw,
    caption="Poses and clouds by set and method",
)
