"""CSV: what is wrong with a line."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from millpond.spark.sources.expressions import declared_type, let, misfit_reason, null_columns, quote
from millpond.spark.sources.reading import TableReader

# Up to this many fields beyond the declared ones are counted.
_SPARE_FIELDS = 16


def find_csv_damage(reader: TableReader, record: Column) -> Column:
    """Which field of a line is wrong, or how many fields there are."""
    names = [column.name for column in reader.table.columns]
    declared, most = len(names), len(names) + _SPARE_FIELDS
    # Both an empty field and a missing one are NULL; a mark at the end of the line shows which field is last.
    mark = F.lit("\ue000")

    def split(text: Column) -> Column:
        line = F.from_csv(text, ", ".join(f"f{i} STRING" for i in range(most)), reader.record_options)
        return let(line, lambda line: F.array(*(line.getField(f"f{i}") for i in range(most))))

    def count_fields(fields: Column) -> Column:
        place = F.array_position(F.transform(fields, lambda field: field.endswith(mark)), True)
        return F.when(place > 0, place).otherwise(most)

    def find_damage(read: Column) -> Column:
        def describe(name: Column) -> Column:
            place = F.array_position(F.array(*map(F.lit, names)), name) - 1
            shown = quote(F.get(fields, place.cast("int")))
            return misfit_reason(name, shown, declared_type(reader.table, name))

        fields, count = read.getField("fields"), read.getField("count")
        number = F.when(count == most, f"{most} or more fields").when(count == 1, "1 field")
        number = number.otherwise(F.concat(count.cast("string"), F.lit(" fields")))
        miscounted = F.concat(number, F.lit(f" where {declared} are declared"))
        lost = F.filter(null_columns(reader.table), lambda name: describe(name).isNotNull())
        misfit = F.when(count <= declared, let(F.get(lost, F.lit(0)), describe))
        return F.coalesce(misfit, F.when(count != declared, miscounted))

    count = let(split(F.concat(record, mark)), count_fields)
    return let(F.struct(split(record).alias("fields"), count.alias("count")), find_damage)
