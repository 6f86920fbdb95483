"""Audits of masks that any model has made: reading and counting them, limits, the saved audit."""
