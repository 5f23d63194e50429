"""Joins with relations that stay in their database: rows are looked up, and the best of them kept."""
