"""Runs that are killed and restarted: no row of the output is lost or written twice.

The output must be the answer of a batch query; on a budget, the output of a run that is not killed.

    python -m tests.campaigns.faults_on_spark driver --kills 20
    python -m tests.campaigns.faults_on_spark driver --kills 10 --kind interval
    python -m tests.campaigns.faults_on_spark worker --kills 2

Queries over windows read streams with timestamps: rows are out of order, and in the middle of the input the
timestamps jump by hours, as after a downtime.

``driver`` kills the whole run, Python and JVM, with SIGKILL at random times and restarts it from its
checkpoint. ``worker`` runs on a standalone cluster of two workers on this machine and kills one of them,
with its executors, during the run; the other takes over.  The output is Parquet and is compared by DuckDB.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import pyspark

STREAMS = {"S": ("A", "B"), "T": ("D", "E"), "V": ("K", "X", "at"), "W": ("K", "Y", "at")}
WINDOW = "V.K = W.K AND W.at BETWEEN V.at AND V.at + INTERVAL 10 MINUTES"
BUCKET = "window(V.at, '10 minutes')"
QUERIES = {
    "bag": "SELECT A, E FROM S, T WHERE A = D AND A BETWEEN 0 AND 40 AND E BETWEEN 0 AND 3",
    "budget": "SELECT A, B, E FROM S, T WHERE A = D AND B <> E",
    "groups": "SELECT A, COUNT(*) AS n, SUM(B) AS t FROM S, T WHERE A = D AND A BETWEEN 0 AND 40 GROUP BY A",
    "interval": f"SELECT V.K, X, Y, W.at FROM V, W WHERE {WINDOW}",
    "joined": f"SELECT V.K, window.start AS s, COUNT(*) AS n, SUM(Y) AS t FROM V, W WHERE {WINDOW} "
    f"GROUP BY V.K, {BUCKET}",
    "tumbling": f"SELECT K, window.start AS s, COUNT(*) AS n, SUM(X) AS t FROM V GROUP BY K, {BUCKET}",
    "medians": f"SELECT K, window.start AS s, MEDIAN(X) AS m FROM V GROUP BY K, {BUCKET}",
    "seen": "SELECT DISTINCT K, at FROM V",
    "unpaid": f"SELECT V.K, X, V.at FROM V WHERE NOT EXISTS (SELECT 1 FROM W WHERE {WINDOW})",
}
# The same in DuckDB, where it is written in another way.
BUCKET_STARTS = ("window.start", "time_bucket(INTERVAL 10 MINUTES, V.at)"), (BUCKET, "s")
WINDOWED = ("interval", "joined", "tumbling", "medians", "seen", "unpaid")
# Seconds of application time in a file, between the rows that are out of order, and of the downtime.
PACE, DELAY, DOWNTIME = 150, 120, 6 * 3600

# The budget of the query that needs one, in tuples.
MEMORY = 40


def write_input(folder: Path, files: int, rows: int, seed: int) -> Path:
    """Write the streams as small JSON files."""
    rng = random.Random(seed)
    for name, columns in STREAMS.items():
        (folder / name).mkdir(parents=True)
        for i in range(files):
            lines = [json.dumps({c: _random_value(rng, c, i, files) for c in columns}) for _ in range(rows)]
            path = folder / name / f"{i:05}.json"
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            os.utime(path, (1_000_000_000 + i, 1_000_000_000 + i))
    return folder


def _random_value(rng: random.Random, column: str, file: int, files: int) -> int | str:
    if column != "at":
        return rng.randrange(60 if column in "ADK" else 8)
    second = file * PACE + rng.randrange(PACE) - rng.randrange(DELAY) + (DOWNTIME if file > files // 2 else 0)
    return (datetime(2024, 5, 1) + timedelta(seconds=second)).isoformat() + "Z"


def write_query(folder: Path, kind: str) -> Path:
    tables = []
    for name, columns in STREAMS.items():
        typed = ", ".join(f"{c} {'TIMESTAMP' if c == 'at' else 'INT'}" for c in columns)
        delay = f" TBLPROPERTIES ('watermark' = '{DELAY} seconds')" if "at" in columns else ""
        source = f"USING json OPTIONS (path '{name}', maxFilesPerTrigger '1'){delay};"
        tables.append(f"CREATE STREAMING TABLE {name} ({typed}) {source}")
    path = folder / f"{kind}.sql"
    path.write_text("\n".join([*tables, QUERIES[kind] + ";"]), encoding="utf-8")
    return path


def make_command(query: Path, output: Path, master: str | None) -> list[str]:
    words = [sys.executable, "-m", "millpond.cli", "run", str(query), "--once", "--output", str(output)]
    words += ["--format", "parquet", "--metrics", f"{output}.metrics"]
    words += ["--memory", str(MEMORY)] if query.stem == "budget" else []
    return words + (["--master", master] if master else [])


def count_differences(folder: Path, kind: str, output: Path) -> int:
    """Count the rows of the output that are not in the batch answer, and vice versa."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, columns in STREAMS.items():
        types = {c: "TIMESTAMPTZ" if c == "at" else "INT" for c in columns}
        source = f"read_json('{folder}/{name}/*.json', columns = {types})"
        connection.execute(f"CREATE VIEW {name} AS FROM {source}")
    truth = QUERIES[kind]
    for text, meaning in BUCKET_STARTS:
        truth = truth.replace(text, meaning)
    if kind == "budget":
        truth = f"FROM read_parquet('{run_undisturbed(folder)}/part-*.parquet')"
    found = f"FROM read_parquet('{output}/part-*.parquet')"
    if kind == "groups":
        found = f"SELECT A, n, t {found} QUALIFY _revision = max(_revision) OVER (PARTITION BY A)"
    wrong = count_late_rows(output) if kind in WINDOWED else 0
    for one, other in ((truth, found), (found, truth)):
        [(count,)] = connection.execute(f"SELECT count(*) FROM (({one}) EXCEPT ALL ({other}))").fetchall()
        wrong += count
    [(rows,)] = connection.execute(f"SELECT count(*) FROM ({truth})").fetchall()
    print(f"  {kind}: {rows:,} rows in the answer, {wrong} wrong in the output", flush=True)
    return int(wrong)


def run_undisturbed(folder: Path) -> Path:
    """Run the query on a budget without killing it; return its output."""
    query, output = write_query(folder, "budget"), folder / "out-undisturbed"
    subprocess.run(make_command(query, output, None), check=True, capture_output=True)
    held = [json.loads(line)["state_entries"] for line in Path(f"{output}.metrics").read_text().splitlines()]
    if max(held) > MEMORY:
        raise SystemExit(f"{max(held)} tuples held under a budget of {MEMORY}")
    return output


def count_late_rows(output: Path) -> int:
    """No row is late: disorder stays within the watermark."""
    lines = Path(f"{output}.metrics").read_text(encoding="utf-8").splitlines()
    return sum(json.loads(line)["late_rows"] for line in lines if line.endswith("}"))


def count_batches(output: Path) -> int:
    metrics = Path(f"{output}.metrics")
    return len(metrics.read_text(encoding="utf-8").splitlines()) if metrics.exists() else 0


# --- the driver --------------------------------------------------------------------------------------


def kill_driver(folder: Path, kind: str, kills: int, rng: random.Random) -> None:
    """Kill the run so many times, restart it each time, and let it end."""
    query, output = write_query(folder, kind), folder / f"out-{kind}"
    killed = 0
    while True:
        before = count_batches(output)
        run = subprocess.Popen(
            make_command(query, output, None), stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        if killed < kills:
            _wait_at_random(run, output, before, rng)
        if killed < kills and run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            killed += 1
            print(f"  {kind}: kill {killed} after batch {count_batches(output)}", flush=True)
            continue
        _, complaint = run.communicate()
        if run.returncode != 0:
            raise SystemExit(f"the run failed with {run.returncode}: {complaint}")
        if killed < kills:
            raise SystemExit(f"the run ended after {killed} kills; give it more files")
        return


def _wait_at_random(run: subprocess.Popen[str], output: Path, before: int, rng: random.Random) -> None:
    """Wait for a random time: while the run starts, or for some batches after that."""
    if rng.random() < 0.15:
        time.sleep(rng.uniform(0.5, 6))
        return
    while run.poll() is None and count_batches(output) <= before:
        time.sleep(0.05)
    time.sleep(rng.uniform(0, 2.5))


# --- a worker ----------------------------------------------------------------------------------------


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A master and two workers with a core each, on the loopback interface."""
    home = Path(pyspark.__file__).parent
    port = _free_port()
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
    }
    url = f"spark://127.0.0.1:{port}"
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        log = (folder / f"daemon-{len(started)}.log").open("wb")
        made = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *words],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        started.append(made)
        return made

    try:
        start(
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--webui-port",
            "0",
        )
        _wait_for(port)
        for i in range(2):
            start_worker(start, url, folder / f"worker-{i}")
        yield url, started[1:]
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def start_worker(start, url: str, folder: Path) -> None:  # type: ignore[no-untyped-def]
    words = (
        "--host",
        "127.0.0.1",
        "--webui-port",
        "0",
        "--cores",
        "1",
        "--memory",
        "1g",
        "--work-dir",
        str(folder),
    )
    start("org.apache.spark.deploy.worker.Worker", *words, url)


def kill_worker(folder: Path, kind: str, rng: random.Random) -> None:
    """Run on the cluster, kill a worker after some batches, and wait until the run ends."""
    query, output = write_query(folder, kind), folder / f"out-{kind}"
    with cluster(folder) as (url, workers):
        run = subprocess.Popen(
            make_command(query, output, url), stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        while run.poll() is None and count_batches(output) < 3:
            time.sleep(0.1)
        time.sleep(rng.uniform(0, 1))
        if run.poll() is not None:
            raise SystemExit(f"the run ended too early: {run.communicate()[1]}")
        at = count_batches(output)
        victim = rng.choice(workers)
        os.killpg(victim.pid, signal.SIGKILL)
        victim.wait()
        print(f"  {kind}: a worker killed after batch {at}", flush=True)
        _, complaint = run.communicate()
        if run.returncode != 0:
            raise SystemExit(f"the run failed with {run.returncode}: {complaint}")
        print(f"  {kind}: the run went on to batch {count_batches(output)}", flush=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(port: int) -> None:
    for _ in range(300):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise SystemExit("the master does not answer")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("victim", choices=("driver", "worker"))
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--kind", choices=sorted(QUERIES), action="append")
    parser.add_argument("--files", type=int, default=60, help="micro-batches of input")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args(argv)
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="millpond-faults-") as name:
        folder = write_input(Path(name), options.files, 40, options.seed)
        kinds = options.kind or list(QUERIES)
        for number, kind in enumerate(kinds):
            if options.victim == "driver":
                share = options.kills // len(kinds) + (number < options.kills % len(kinds))
                kill_driver(folder, kind, share, rng)
            else:
                kill_worker(folder, kind, rng)
            wrong += count_differences(folder, kind, folder / f"out-{kind}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
