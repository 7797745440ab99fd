"""What is remembered: the shared records, the SQLite store, lineage, export and reports."""
