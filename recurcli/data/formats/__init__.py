"""Readers of data files, which all return the same records: TSV, CSV, JSON lines, Parquet, folders of texts."""
