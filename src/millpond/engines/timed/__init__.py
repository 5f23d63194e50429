"""Application time: partial matches, kept while rows that must come later are still to come."""
