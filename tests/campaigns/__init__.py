"""Random queries and runs, compared with independent evaluations; the suite runs a part of each."""
