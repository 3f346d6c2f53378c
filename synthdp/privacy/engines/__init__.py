"""Engines that count a table where it lies: Parquet files, a Dask cluster, a database."""
