"""Where logs come from: tables in memory, Parquet and CSV files, Arrow streams, Spark, and obp's dict."""

from offpolicy.data.sources.obp import from_obp
from offpolicy.data.sources.reader import read_log

__all__ = ["from_obp", "read_log"]
