"""What has to be kept: the data types that the analysis produces and the engines consume."""
