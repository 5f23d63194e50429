"""The lab: the files it writes, reproducibility by seed, and its errors."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np
import pytest

from millpond.cli.main import main
from millpond.lab.experiments import EXPERIMENTS, Settings
from millpond.lab.figures import STYLES, draw
from millpond.lab.results import CACHING, JOINING, Row, average, write_csv
from millpond.lab.simulate import cache_player, join_player
from millpond.lab.workloads import REAL_LENGTH, REAL_MODEL, SYNTHETIC, load_real, read_keys
from millpond.policies.registry import Use, policy_names

JOIN_POLICIES, CACHE_POLICIES = policy_names(Use.LAB_JOIN), policy_names(Use.LAB_CACHE)


def read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def rows_of(name: str, count: int) -> list[Row]:
    """The first rows of the quick experiment."""
    planned = EXPERIMENTS[name](Settings(quick=True))
    rows = []
    for row in planned.rows:
        rows.append(row)
        if len(rows) == count:
            break
    assert len(rows) <= planned.total
    return rows


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["fig6", "fig14", "fig15", "fig17", "fig18"])
def test_an_experiment_gives_the_announced_number_of_rows_and_a_figure(name: str) -> None:
    planned = EXPERIMENTS[name](Settings(quick=True))
    rows = list(planned.rows)
    assert len(rows) == planned.total
    figure = draw(name, rows)
    assert all(axes.get_xlabel() and axes.get_title() for axes in figure.axes)


def test_memory_goes_to_the_leading_and_to_the_steadier_stream() -> None:
    rows = list(EXPERIMENTS["fig14"](Settings(quick=True)).rows)
    share = {
        config: average(row.results for row in rows if row.config == config and row.size == 10).mean
        for config in {row.config for row in rows}
    }
    assert share["lag=0"] == pytest.approx(0.5, abs=0.02)
    assert share["lag=0"] > share["lag=2"] > share["lag=4"]
    assert share["deviation x1"] < share["deviation x2"] < share["deviation x4"]


@pytest.mark.campaign
def test_heeb_is_ahead_of_the_baselines_at_size_10() -> None:
    for name, make in SYNTHETIC.items():
        work = make()
        streams = [work.streams(5, run, 3000) for run in range(6)]
        results = {}
        for policy in ("rand", "prob", "life", "heeb", "opt"):
            if policy != "life" or work.windows:
                player = join_player(policy, work, 10)
                results[policy] = sum(player(r, s, run) for run, (r, s) in enumerate(streams))
        others = [count for policy, count in results.items() if policy not in ("heeb", "opt")]
        assert max(others) < results["heeb"] <= results["opt"]
        shares = {"TOWER": 0.999, "ROOF": 0.77, "FLOOR": 0.42}
        if name in shares:
            assert results["heeb"] / results["opt"] == pytest.approx(shares[name], abs=0.02)


def test_every_policy_of_the_lab_has_a_style_in_figures() -> None:
    assert set(JOIN_POLICIES) | set(CACHE_POLICIES) == set(STYLES)


@pytest.mark.campaign
@pytest.mark.parametrize("policy", CACHE_POLICIES)
def test_every_cache_policy_plays(policy: str) -> None:
    keys = REAL_MODEL.sample(np.random.default_rng(1), 600)
    hits = cache_player(policy, 40, REAL_MODEL)(keys).sum()
    assert 0 < hits <= cache_player("lfd", 40, None)(keys).sum()


@pytest.mark.campaign
@pytest.mark.parametrize("policy", JOIN_POLICIES)
def test_every_join_policy_plays(policy: str) -> None:
    work = SYNTHETIC["TOWER"]()
    r, s = work.streams(1, 0, 300)
    least = 0 if policy == "lfu" else 1  # LFU evicts every new tuple
    assert least <= join_player(policy, work, 4)(r, s, 0) <= join_player("opt", work, 4)(r, s, 0)


# --- the command -----------------------------------------------------------------------------------


def test_lab_cache_writes_a_table_and_two_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "keys.gz"
    trace.write_bytes(gzip.compress(b"\n".join(b"%d" % (i % 7) for i in range(300)) + b"\n\n*\n"))
    out = tmp_path / "out"
    call = [
        "lab",
        "cache",
        "--trace",
        str(trace),
        "--sizes",
        "3,5",
        "--policies",
        "lru,lfd",
        "--output",
        str(out),
    ]
    assert main(call) == 0
    rows = read(out / "results.csv")
    assert tuple(rows[0]) == CACHING
    assert [(row["policy"], row["size"], row["hits"]) for row in rows[:2]] == [
        ("lru", "3", "0"),
        ("lru", "5", "0"),
    ]
    assert int(rows[2]["hits"]) > 0
    assert rows[2]["hit_ratio"] == f"{int(rows[2]['hits']) / 300:.6f}"
    assert (out / "cache.svg").read_text().startswith("<?xml")
    assert (out / "cache.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr()
    assert str(out / "results.csv") in printed.out
    first = (out / "results.csv").read_bytes(), (out / "cache.svg").read_bytes()
    assert main(call) == 0
    assert ((out / "results.csv").read_bytes(), (out / "cache.svg").read_bytes()) == first


def test_lab_join_identifies_the_streams(tmp_path: Path) -> None:
    work = SYNTHETIC["ROOF"]()
    for name, values in zip("rs", work.streams(3, 0, 1200), strict=True):
        (tmp_path / name).write_text("\n".join(map(str, values)))
    files = ["--r", str(tmp_path / "r"), "--s", str(tmp_path / "s")]
    call = ["lab", "join", *files, "--sizes", "5", "--policies", "rand,heeb,opt", "--output", str(tmp_path)]
    assert main(call) == 0
    rows = read(tmp_path / "results.csv")
    assert tuple(rows[0]) == JOINING
    results = {row["policy"]: int(row["results"]) for row in rows}
    assert rows[0]["config"] == "trend and trend"
    assert results["rand"] < results["heeb"] < results["opt"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["fig99"], "there is no 'fig99'"),
        (["fig8", "--trace", "x"], "fig8 does not use --trace"),
        (["cache"], "give --trace FILE"),
        (["cache", "--trace", "no/such/file"], "cannot read the trace"),
        (["cache", "--trace", "EMPTY"], "has no keys"),
        (["cache", "--trace", "KEYS", "--sizes", "0"], "not a list of memory sizes"),
        (["cache", "--trace", "KEYS", "--sizes", "ten"], "not a list of memory sizes"),
        (["cache", "--trace", "KEYS", "--policies", "lrú"], "there is no policy"),
        (["cache", "--trace", "KEYS", "--policies", "heeb"], "needs a model of the keys"),
        (["join", "--r", "KEYS"], "give --r FILE and --s FILE"),
        (["join", "--r", "KEYS", "--s", "KEYS"], "no model fits the streams"),
        (["fig13", "--real", "BROKEN"], "without a number after its last comma"),
        (["fig6", "--seed", "-1"], "--seed must not be negative"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"EMPTY": "\n", "KEYS": "a\nb\na\n", "BROKEN": "Date,Temperature\n1981-01-01,warm\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = [str(tmp_path / word) if word in files else word for word in arguments]
    assert main(["lab", *given, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_output_that_is_a_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["lab", "fig6", "--output", str(tmp_path / "file")]) == 2
    assert "cannot create the folder" in capsys.readouterr().err


# --- files -----------------------------------------------------------------------------------------


def test_traces_are_integers_words_or_temperatures(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("5\n\n*\n-3\n")
    assert read_keys(path).tolist() == [5, -3]
    path.write_text("b\na\nb\n")
    assert read_keys(path).tolist() == [1, 0, 1]
    path.write_text('"Date","Temp"\n"1981-01-01",20.7\n"1981-01-02","17.9"\n')
    assert read_keys(path).tolist() == [207, 179]


def test_real_without_a_file_is_drawn_from_the_published_model() -> None:
    keys = load_real(None, 1)
    assert len(keys) == REAL_LENGTH
    assert keys.tolist() == load_real(None, 1).tolist() != load_real(None, 2).tolist()
    assert keys.mean() == pytest.approx(REAL_MODEL.long_run_mean, abs=10)


def test_numbers_are_written_in_their_shortest_form(tmp_path: Path) -> None:
    write_csv([Row("e", "c", "p", 10, 0, 3.0), Row("e", "c", "p", 2.5, 1, 1 / 3)], tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text().splitlines()[1:] == ["e,c,p,10,0,3", "e,c,p,2.5,1,0.333333333"]
