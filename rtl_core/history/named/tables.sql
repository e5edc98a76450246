-- Tables and views of the history, with their columns.
SELECT t.table_type AS kind, c.table_name AS name, string_agg(c.column_name || ' ' || c.data_type, ', ' ORDER BY c.ordinal_position) AS columns
FROM information_schema.columns c JOIN information_schema.tables t USING (table_catalog, table_schema, table_name)
WHERE c.table_catalog = current_database() GROUP BY t.table_type, c.table_name ORDER BY t.table_type, c.table_name
