"""Check the PySpark programs of the corpus: a DataFrame must have the verdict of the same query as SQL.

    python -m tests.campaigns.programs [--only NAME…]

Prints the programs whose verdicts differ, with the SQL that their plans are rendered as.  Runs no query.
Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from millpond.analysis.decide import check
from millpond.analysis.verdict import Verdict
from millpond.spark.plans.check import check_frame
from tests.campaigns.spark_state import open_session
from tests.fixtures.programs import PROGRAMS, Tables
from tests.fixtures.programs.tables import STREAMS


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[])
    chosen = [PROGRAMS[name] for name in parser.parse_args().only or PROGRAMS]
    wrong = 0
    spark = open_session()
    with tempfile.TemporaryDirectory() as folder:
        for stream in STREAMS:
            (Path(folder) / stream).mkdir()
        for program in chosen:
            verdict = check_frame(program.build(Tables(spark, Path(folder))), program.mode)
            text = check(program.text) if program.text is not None else None
            outcomes = {
                program.outcome,
                verdict.outcome,
                *([text.outcome] if isinstance(text, Verdict) else []),
            }
            if len(outcomes) > 1:
                wrong += 1
                print(f"WRONG {program.name}: expected {program.outcome}, found {verdict.outcome}")
                print(verdict.query_text)
    print(f"{len(chosen)} programs, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
