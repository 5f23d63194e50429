"""Streaming DataFrames as queries: reads Spark's analysed plan and renders it as SQL text."""
