"""Reading declared tables: every row is checked, and a malformed row carries the reason."""
