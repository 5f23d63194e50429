"""Queries over subqueries with finitely many rows, which change: these rows are kept, and the answer is
computed anew whenever they change."""
