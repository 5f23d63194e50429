"""The experiments of paper 3: each writes a CSV file and a figure."""
