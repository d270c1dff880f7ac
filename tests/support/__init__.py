"""Helpers of the test suite. They run under Python 3.8 too: the recorder of the oracle imports them."""
