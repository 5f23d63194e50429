"""SQL text to queries: parsing, names, types, and refusals with their position."""
