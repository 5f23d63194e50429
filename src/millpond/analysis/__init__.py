"""Decides whether a query needs bounded memory: criteria, witnesses, plans and explanations."""
