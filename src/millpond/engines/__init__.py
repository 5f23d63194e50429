"""How queries are run, without Spark: each engine compiles a plan to a program and executes it."""
