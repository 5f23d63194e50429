"""The operators of Spark's plans by what they do with rows, and their names in the DataFrame API."""

from __future__ import annotations

from millpond.spark.plans.nodes import PlanNode


class OpaqueOperatorError(Exception):
    """An operator of which no query is known; the text says why."""


def refuse_opaque(node: PlanNode) -> None:
    """Raise OpaqueOperatorError for an operator whose results only its own program, or the batches, tell."""
    if node.kind in STATEFUL:
        raise OpaqueOperatorError(f"{describe_operator(node)} keeps state that only its own program knows")
    if node.kind in BY_BATCH:
        name = describe_operator(node)
        raise OpaqueOperatorError(
            f"{name} sees the groups of one micro-batch at a time, not those of the stream"
        )


# Operators that hand on the rows of their input, or some of them that do not depend on other rows.
TRANSPARENT = frozenset(
    {
        *("SubqueryAlias", "View", "ResolvedHint", "Repartition", "RepartitionByExpression"),
        *("RebalancePartitions", "CollectMetrics", "Sample", "TypedFilter", "LocalLimit", "CTERelationDef"),
    }
)
# Operators that make rows of each row, or of each batch, by a function that is not known.
OPAQUE_MAPS = {
    "MapInPandas": "mapInPandas",
    "MapInArrow": "mapInArrow",
    "PythonMapInArrow": "mapInArrow",
    "MapPartitions": "mapPartitions",
    "MapElements": "map",
    "SerializeFromObject": "map",
    "DeserializeToObject": "map",
    "AppendColumns": "groupByKey",
    "ScriptTransformation": "TRANSFORM",
}
# Operators whose state only their own program knows.
STATEFUL = {
    "FlatMapGroupsWithState": "flatMapGroupsWithState",
    "FlatMapGroupsInPandasWithState": "applyInPandasWithState",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPandas": "transformWithStateInPandas",
    "TransformWithStateInPySpark": "transformWithState",
}
# Operators that compute the groups of each micro-batch by themselves, and keep nothing.
BY_BATCH = {
    "FlatMapGroupsInPandas": "applyInPandas",
    "FlatMapGroupsInArrow": "applyInArrow",
    "FlatMapCoGroupsInPandas": "cogroup().applyInPandas",
    "FlatMapCoGroupsInArrow": "cogroup().applyInArrow",
    "MapGroups": "mapGroups",
    "CoGroup": "cogroup",
}
_OTHERS = {
    "GlobalLimit": "limit",
    "Offset": "offset",
    "Tail": "tail",
    "Deduplicate": "dropDuplicates",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark",
    "EventTimeWatermark": "withWatermark",
    "Intersect": "intersect",
    "Except": "exceptAll",
    "AsOfJoin": "asof join",
    "LateralJoin": "LATERAL",
    "Generate": "explode",
}


def describe_operator(node: PlanNode) -> str:
    """What the DataFrame API calls an operator; Spark's own name for one that it has no name for."""
    if node.kind == "TransformWithStateInPySpark" and node.fields.get("userFacingDataType") == "pandas":
        return "transformWithStateInPandas"
    names = {**OPAQUE_MAPS, **STATEFUL, **BY_BATCH, **_OTHERS}
    return names.get(node.kind, node.kind)
