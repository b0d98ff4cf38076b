"""The kinds of data files, each read into the same records: TSV, CSV, JSON lines, Parquet, folders of texts."""
