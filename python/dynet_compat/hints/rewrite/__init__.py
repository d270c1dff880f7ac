"""Regions of a script recorded by one call: found in its source, put in their place while it runs."""
