"""Bounded queries on Spark Structured Streaming."""
