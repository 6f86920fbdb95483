"""Data sets on disk or built in: one reader per layout, and the table of class names and colours."""
