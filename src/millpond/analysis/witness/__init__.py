"""Certificates of growth: rows that every algorithm must tell apart."""
