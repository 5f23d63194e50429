"""Check the PySpark programs of the corpus: a DataFrame must have the verdict of the same query as SQL.

    python -m tests.campaigns.programs [--only NAME…]

Prints the programs whose verdicts, or predicted states, are not as expected, with the SQL that their plans
are rendered as.  Runs no query.  Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from millpond.analysis.decide import check
from millpond.analysis.verdict import Verdict
from millpond.errors import SqlError
from millpond.spark.plans.check import check_frame
from tests.campaigns.spark_state import open_session
from tests.fixtures.programs import PROGRAMS, Program, Tables
from tests.fixtures.programs.tables import STREAMS


def check_text(program: Program) -> str | None:
    """The outcome of the program's SQL, or why it is refused; None if it has none."""
    if program.text is None:
        return None
    try:
        verdict = check(program.text)
    except SqlError as error:
        return f"refused: {error}"
    assert isinstance(verdict, Verdict), "a program is one query"
    return verdict.outcome


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
            in_sql = check_text(program)
            expected = {verdict.outcome, in_sql or program.outcome} == {program.outcome}
            if not expected or (program.state is not None and verdict.spark_state != program.state):
                wrong += 1
                print(f"WRONG {program.name}: expected {program.outcome}, {program.state}")
                print(f"found {verdict.outcome}, {verdict.spark_state}: {'; '.join(verdict.spark_reasons)}")
                print(f"as SQL {in_sql}; {'; '.join(each.message for each in verdict.reasons)}")
                print(verdict.query_text)
    print(f"{len(chosen)} programs, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
