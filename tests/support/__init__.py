"""What the tests share: random queries, a brute-force oracle, the definition as a checker."""
