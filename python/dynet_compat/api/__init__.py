"""Names of the API that are written in Python: functions, the graph, builders, value types, older names."""
