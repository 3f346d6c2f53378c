"""Reading a table: files and queries, whole or in batches."""
