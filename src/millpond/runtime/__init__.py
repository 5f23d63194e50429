"""What every engine runs on: DuckDB, SQL rendering, and the encoding of state."""
