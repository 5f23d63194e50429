"""Reads the analysed plan of a DataFrame.

Its tree comes from the plan's JSON form.  What that leaves out (delays of watermarks, options of sources) is
asked of Spark.  Nothing is executed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from py4j.java_collections import JavaMap
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millpond.frontend.spark_functions import is_known_function
from millpond.spark.answer import WATERMARK_DELAY
from millpond.spark.plans.nodes import Attribute, PlanExpression, PlanNode, PlanSource

_STREAMS = {
    "StreamingRelation",
    "StreamingRelationV2",
    "StreamingExecutionRelation",
    "StreamingDataSourceV2Relation",
}
# Reads every row that another source with the same options reads.
_REPLAYED = {"kafka", "delta", "iceberg", "parquet", "orc", "json", "csv", "text", "avro", "xml"}


def read_plan(frame: DataFrame) -> PlanNode:
    """The analysed plan of a DataFrame."""
    jvm = frame.sparkSession._jvm
    plan = frame._jdf.queryExecution().analyzed()
    return _add_details(parse_plan(plan.toJSON(), _list_functions(jvm)), plan, jvm)


def read_optimised_plan(frame: DataFrame) -> PlanNode:
    """The plan of a DataFrame after Spark's optimiser, which pushes filters down and prunes columns."""
    jvm, session = frame.sparkSession._jvm, frame.sparkSession._jsparkSession
    plan = session.sessionState().optimizer().execute(frame._jdf.queryExecution().analyzed())
    return _add_details(parse_plan(plan.toJSON(), _list_functions(jvm)), plan, jvm)


def parse_plan(text: str, functions: Mapping[str, str]) -> PlanNode:
    """The plan of a JSON text, as Spark's ``TreeNode.toJSON`` writes it: without what only Spark knows.

    ``functions`` are the names of functions in SQL, by class.
    """
    tree = _Decoder(functions).decode(json.loads(text))
    assert isinstance(tree, PlanNode), "the root of a plan is a node"
    return tree


# --- JSON ------------------------------------------------------------------------------------------------


class _Decoder:
    """Decodes values of fields; a tree is a list of its nodes, parents first."""

    def __init__(self, functions: Mapping[str, str]) -> None:
        self.functions = functions

    def decode(self, value: Any) -> Any:
        if isinstance(value, list):
            if value and isinstance(value[0], dict) and "num-children" in value[0]:
                return self._decode_tree(iter(value))
            return tuple(map(self.decode, value))
        if isinstance(value, dict):
            if "object" in value and len(value) == 1:  # an object of Scala, such as LeftOuter
                return _short_name(value["object"])
            return {key: self.decode(each) for key, each in value.items()}
        return value

    def _decode_tree(self, nodes: Iterator[Mapping[str, Any]]) -> PlanNode | PlanExpression:
        raw = next(nodes)
        children = [self._decode_tree(nodes) for _ in range(raw["num-children"])]
        fields = {key: self.decode(raw[key]) for key in raw.keys() - {"class", "num-children", "dataType"}}
        fields = {key: fields[key] for key in raw if key in fields}
        if _is_expression(raw["class"]):
            expressions = tuple(child for child in children if isinstance(child, PlanExpression))
            return self._build_expression(raw, expressions, fields)
        kind = _short_name(raw["class"])
        inputs = tuple(child for child in children if isinstance(child, PlanNode))
        streaming = kind in _STREAMS or raw.get("isStreaming") is True or any(c.streaming for c in inputs)
        output = tuple(
            Attribute(each.name or "", each.expr_id or 0, each.type or "", each.fields.get("nullable", True))
            for each in fields.get("output") or ()
            if isinstance(each, PlanExpression) and each.kind == "AttributeReference"
        )
        return PlanNode(kind, inputs, fields, streaming, output)

    def _build_expression(
        self, raw: Mapping[str, Any], children: tuple[PlanExpression, ...], fields: Mapping[str, Any]
    ) -> PlanExpression:
        expr_id, name, value = raw.get("exprId"), raw.get("name"), raw.get("value")
        type_ = raw.get("dataType") or (raw.get("schema") if raw["class"].endswith("ToStructs") else None)
        return PlanExpression(
            _short_name(raw["class"]),
            children,
            fields,
            expr_id["id"] if isinstance(expr_id, dict) else None,
            name if isinstance(name, str) else None,
            read_type(type_) if type_ is not None else None,
            value if value is None or isinstance(value, str) else json.dumps(value),
            self.functions.get(_short_name(raw["class"])),
        )


def _is_expression(name: str) -> bool:
    """Whether a class is an expression; all others are operators."""
    return ".expressions." in name or ".aggregate." in name or ".analysis." in name


def _short_name(name: str) -> str:
    """The name of a class or an object of Scala without its package.

    >>> _short_name("org.apache.spark.sql.catalyst.plans.LeftOuter$")
    'LeftOuter'
    """
    return name.removesuffix("$").rpartition(".")[2].rpartition("$")[2]


def read_type(value: Any) -> str:
    """A type of Spark's JSON as a type of Spark SQL.

    >>> read_type("long"), read_type({"type": "array", "elementType": "integer", "containsNull": True})
    ('bigint', 'array<int>')
    """
    try:
        column = {"name": "c", "type": value, "nullable": True, "metadata": {}}
        return StructType.fromJson({"type": "struct", "fields": [column]}).fields[0].dataType.simpleString()
    except Exception:  # a type that this PySpark does not know, such as one that users define
        return value if isinstance(value, str) else "void"


# --- what only Spark knows -------------------------------------------------------------------------------


@cache
def _list_functions(jvm: Any) -> dict[str, str]:
    """The names of Spark's functions, by class; of several names the one that is most like the class."""
    found: dict[str, str] = {}
    for info in jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos():
        kind, name = _short_name(info.getClassName()).removesuffix("ExpressionBuilder"), info.getName()
        is_like_class = name.replace("_", "") == kind.lower()
        if is_like_class or kind not in found or not is_known_function(found[kind]):
            found[kind] = name
    return found


def _add_details(node: PlanNode, plan: Any, jvm: Any) -> PlanNode:
    """The node with its output and source, from the plan in the JVM."""
    inputs = plan.children()
    children = tuple(_add_details(child, inputs.apply(i), jvm) for i, child in enumerate(node.children))
    source = _read_source(node, plan, jvm) if not children and node.streaming else None
    return PlanNode(node.kind, children, node.fields, node.streaming, _read_output(plan), source)


def _read_output(plan: Any) -> tuple[Attribute, ...]:
    columns = json.loads(plan.schema().json())["fields"]
    output = plan.output().mkString("\x00").split("\x00") if columns else []
    return tuple(
        Attribute(
            column["name"],
            _read_id(text),
            read_type(column["type"]),
            column["nullable"],
            column["metadata"].get(WATERMARK_DELAY),
        )
        for column, text in zip(columns, output, strict=True)
    )


def _read_id(text: str) -> int:
    """The ID of an attribute from its text.

    >>> _read_id("timestamp#12-T10000ms"), _read_id("a#1 b#3L")
    (12, 3)
    """
    found = re.search(r"#(\d+)L?(-T\d+ms)?$", text)
    assert found is not None, f"an attribute without an ID: {text}"
    return int(found[1])


def _read_source(node: PlanNode, plan: Any, jvm: Any) -> PlanSource | None:
    """The source of a leaf; a leaf that cannot be asked has none."""
    try:
        is_first_api = node.kind == "StreamingRelation"
        source = plan.dataSource() if is_first_api else plan.table()
        format_ = _short_name(source.className() if is_first_api else plan.sourceName())
        options = _read_options(source.options() if is_first_api else plan.extraOptions())
        if format_.lower() in _REPLAYED:
            return PlanSource(format_, options, json.dumps([format_, options], sort_keys=True))
        return PlanSource(format_, options, f"{format_} {jvm.java.lang.System.identityHashCode(source)}")
    except (Py4JError, TypeError):  # not every version of Spark, nor every source, has these methods
        return None


def _read_options(options: Any) -> dict[str, str]:
    """The options of a source, with names in lower case, from a map of Scala or Java."""
    if isinstance(options, JavaMap):
        return {str(key).lower(): str(value) for key, value in options.items()}
    found: dict[str, str] = {}
    pairs = options.iterator()
    while pairs.hasNext():
        pair = pairs.next()
        found[str(pair._1()).lower()] = str(pair._2())
    return found
