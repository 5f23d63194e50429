"""Spark SQL as sqlglot reads it, made into queries of the model: names, types, and what is refused."""
