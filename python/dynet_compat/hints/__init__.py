"""Static hints: what is known of a script before it runs."""
