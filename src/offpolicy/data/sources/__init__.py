"""Where logs come from: tables in memory, Parquet and CSV files, Arrow streams, Spark, obp's dict, and Vowpal Wabbit."""

from offpolicy.data.sources.obp import from_obp
from offpolicy.data.sources.reader import read_log
from offpolicy.data.sources.vw import read_vw

__all__ = ["from_obp", "read_log", "read_vw"]
