"""`proba graph`: the view graph alone, as JSON and as a picture."""

import itertools
import json
from xml.etree import ElementTree

import numpy as np
import pytest
from failing import fails_in_one_line

import proba
from proba.cli import main
from proba.matches import ImageInfo, Matches


@pytest.fixture(scope="module")
def matches():
    """Six images in a piece, two in another, and one alone, whose name must not become markup."""
    names = [*(f"a/{k}.jpg" for k in range(6)), "b/0.jpg", "b/1.jpg", "<alone>.jpg"]
    rng = np.random.default_rng(0)
    pairs = [*itertools.combinations(range(6), 2), (6, 7)]
    counts = {(i, j): 400 // (j - i) for i, j in pairs}
    found = Matches([ImageInfo(name=name, width=640, height=480) for name in names])
    for (i, j), count in counts.items():
        points = rng.uniform(0, 480, (2, count, 2)).astype(np.float32)
        found.add(i, j, *points, np.ones(count, np.float32))
    return found


@pytest.fixture(scope="module")
def written(matches, tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph")
    proba.save_matches(folder / "m.h5", matches)
    main(["graph", str(folder / "m.h5"), "--out", str(folder / "graph.json"), "--picture", str(folder / "graph.svg")])
    return folder


def test_file_holds_what_the_solver_would_look_at(matches, written):
    record = json.loads((written / "graph.json").read_text())
    graphs, alone = proba.build_view_graphs(matches)
    assert record["images"] == 9 and record["unmatched"] == ["<alone>.jpg"] and len(alone) == 1
    assert [len(piece["images"]) for piece in record["pieces"]] == [6, 2]
    for piece, graph in zip(record["pieces"], graphs, strict=True):
        names = piece["images"]
        assert piece["root"] == names[graph.root] and piece["root"] not in piece["parent"]
        assert set(piece["parent"]) | {piece["root"]} == set(names)
        assert sum(edge["tree"] for edge in piece["edges"]) == len(names) - 1
        assert [edge["weight"] for edge in piece["edges"]] == pytest.approx(graph.initial_weight.tolist())
        for edge in piece["edges"]:
            index = [[info.name for info in matches.images].index(edge[end]) for end in "ij"]
            assert edge["matches"] == len(matches.pairs[tuple(index)].scores)


def test_picture_has_a_dot_for_each_image_and_a_line_for_each_edge(matches, written):
    root = ElementTree.fromstring((written / "graph.svg").read_text())
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    graphs, _ = proba.build_view_graphs(matches)
    assert tags.count("circle") == 8 and tags.count("line") == sum(graph.n_edges for graph in graphs)


def test_settings_of_the_graph_are_options(written, capsys):
    main(["graph", str(written / "m.h5"), "-o", str(written / "sparse.json"), "--graph.n-neig", "2"])
    few = json.loads((written / "sparse.json").read_text())["pieces"][0]["edges"]
    many = json.loads((written / "graph.json").read_text())["pieces"][0]["edges"]
    assert 5 <= len(few) < len(many)
    assert "piece 0: 6 images" in capsys.readouterr().out


def test_bad_input_gets_one_line_and_code_2(tmp_path, capsys):
    out = tmp_path / "graph.json"
    assert "no matches file" in fails_in_one_line(capsys, "graph", str(tmp_path / "none.h5"), "--out", str(out))
    proba.save_matches(tmp_path / "m.h5", Matches([ImageInfo(name=name, width=9, height=9) for name in "ab"], {}))
    assert "No two of the 2" in fails_in_one_line(capsys, "graph", str(tmp_path / "m.h5"), "--out", str(out))
    said = fails_in_one_line(capsys, "graph", str(tmp_path / "m.h5"), "--out", str(out), "--graph.n-neig", "1")
    assert "n_neig" in said and not out.exists()
