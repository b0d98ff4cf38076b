"""The efficient Transformers of TransJect's long-range table (Sengupta et al., 2023): the shared block, another attention."""
