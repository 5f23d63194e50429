"""NOT NULL and CHECK: what marks or stops a malformed row."""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from millpond.errors import one_line
from millpond.query import expressions
from millpond.query.expressions import Condition, Ref, Truth
from millpond.query.model import Table
from millpond.query.trees import substitute, walk
from millpond.query.types import INTEGERS
from millpond.runtime.sql import Dialect, condition_sql, expression_sql
from millpond.spark.sources.expressions import column_named, optimizer_barrier
from millpond.spark.sources.opened import REASON, RECORD, OpenSource
from millpond.spark.sources.reading import RawRows


def check_rows(table: Table, rows: RawRows, strict: bool) -> OpenSource:
    """Mark each row with the first thing that is wrong with it; with ``strict``, fail on such a row."""
    names = [column_named(column.name) for column in table.columns]
    nothing = F.lit(None).cast("string")
    damage = nothing if rows.damage is None else rows.damage
    record = nothing if rows.record is None else rows.record
    read = rows.frame.select(*rows.columns, damage.alias(REASON), record.alias(RECORD))
    reasons = ([] if rows.damage is None else [F.col(REASON)]) + _broken_constraints(table)
    if not reasons:
        return OpenSource(read.select(*names), False)
    reason = F.coalesce(*reasons)
    shown = F.coalesce(F.col(RECORD), F.to_json(F.struct(*names), {"ignoreNullFields": "false"}))
    if strict:
        message = F.concat(F.lit(f"malformed row in {table.name}: "), reason, F.lit(": "), shown)
        fails = F.raise_error(message).cast("boolean")
        is_good = F.when(optimizer_barrier() & reason.isNull(), True).otherwise(fails)
        return OpenSource(read.where(is_good).select(*names), False)
    marked = read.select(*names, F.when(optimizer_barrier(), reason).alias(REASON), F.col(RECORD))
    record = F.when(F.col(REASON).isNotNull(), shown).alias(RECORD)
    return OpenSource(marked.select(*names, F.col(REASON), record), True)


def _broken_constraints(table: Table) -> list[Column]:
    """For each constraint, the reason to reject a row that breaks it; NULL for the other rows."""
    reasons = []
    for column in table.columns:
        if not column.nullable:
            missing = f"{column.name} is NULL but declared NOT NULL"
            reasons.append(F.when(column_named(column.name).isNull(), missing))
    for check in table.checks:
        if check not in (Truth(True), Truth(None)):
            broken = f"CHECK ({one_line(_spell(check), 200)}) is broken"
            reasons.append(F.when(~F.expr(check_sql(table, check)), broken))
    return reasons


def check_sql(table: Table, check: Condition) -> str:
    """A CHECK as Spark SQL over the table's columns, three-valued.

    Arithmetic does not overflow: integers are added as DECIMAL(20,0), the rest with ``try_add``.
    """
    shifts: dict[expressions.Expr, Ref] = {}
    texts: dict[Ref, str] = {}
    for node in walk(check):
        if isinstance(node, expressions.Arithmetic) and node not in shifts:
            place = Ref("", str(len(shifts)))
            shifts[node], texts[place] = place, _shift_sql(table, node)

    computed = {column.name: column.derivation.sql for column in table.derived if column.derivation}

    def spell_ref(ref: Ref) -> str:
        if ref.column in computed and ref not in texts:
            return f"({computed[ref.column]})"
        return texts.get(ref) or Dialect.SPARK.name_of(ref.column)

    return condition_sql(substitute(check, shifts), spell_ref, Dialect.SPARK)


def _shift_sql(table: Table, shift: expressions.Arithmetic) -> str:
    """A column plus or minus a constant; NULL where it overflows."""
    if not isinstance(shift.left, Ref) or shift.operator not in "+-":
        raise ValueError("a CHECK compares columns, shifted columns and constants")
    left = Dialect.SPARK.name_of(shift.left.column)
    if table.column(shift.left.column).type in INTEGERS:
        left = f"CAST({left} AS DECIMAL(20,0))"
    right = expression_sql(shift.right, lambda ref: Dialect.SPARK.name_of(ref.column), Dialect.SPARK)
    return f"{'try_add' if shift.operator == '+' else 'try_subtract'}({left}, {right})"


def _spell(condition: Condition) -> str:
    """A condition as the user wrote it; ``BETWEEN`` and ``IN`` have become several comparisons."""
    match condition:
        case expressions.Comparison(text=text) | expressions.IsNull(text=text):
            return text
        case expressions.And(operands=operands) | expressions.Or(operands=operands):
            word = " AND " if isinstance(condition, expressions.And) else " OR "
            inner = [(_spell(each), isinstance(each, expressions.And | expressions.Or)) for each in operands]
            return word.join(dict.fromkeys(f"({text})" if is_joined else text for text, is_joined in inner))
        case expressions.Not(operand=operand):
            spelled = _spell(operand)
            predicates = {getattr(each, "text", "") for each in walk(operand)} - {""}
            is_negated = re.search(r"\bNOT\s+(IN|BETWEEN|NULL)\b", spelled, re.IGNORECASE)
            return spelled if is_negated and len(predicates) == 1 else f"NOT ({spelled})"
        case expressions.NotTrue(operand=operand):
            return f"({_spell(operand)}) IS NOT TRUE"
        case Truth(value=value):
            return "NULL" if value is None else str(value).upper()
