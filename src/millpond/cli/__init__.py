"""The command line: ``millpond COMMAND …``."""
