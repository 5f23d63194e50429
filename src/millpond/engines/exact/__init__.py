"""What is kept: constant-size summaries of streams."""
