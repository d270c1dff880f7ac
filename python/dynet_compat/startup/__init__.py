"""What happens at import: options, configuration, devices, the modules that stand for DyNet's own."""
