"""Witnesses: rows that prove that memory must grow, built from a violation and confirmed by brute force."""
