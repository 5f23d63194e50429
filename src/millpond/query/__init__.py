"""What is asked: the language, its types, and the closure of a query's predicates."""
