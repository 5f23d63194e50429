"""The experiments of paper 3, run to a table and a picture."""
