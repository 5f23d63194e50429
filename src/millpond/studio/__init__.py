"""The studio: a page on this machine to write SQL and see its verdict, its picture and its repairs."""
