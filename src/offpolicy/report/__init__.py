"""Plain dicts become words, tables, pictures and pages."""
