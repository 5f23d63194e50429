"""The tour of ``millpond demo``: its script, what it measures, and how it is shown."""
