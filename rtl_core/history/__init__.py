"""The history in DuckDB: schema, writer, readers, named queries and export."""
