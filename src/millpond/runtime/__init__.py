"""What every engine runs on: DuckDB, SQL rendering, the codec of the state."""
