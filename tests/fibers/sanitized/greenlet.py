"""First on the path in `make sanitize`: greenlet moves stacks, which the sanitizer takes for errors."""

raise ModuleNotFoundError("greenlet is not used with the address sanitizer")
