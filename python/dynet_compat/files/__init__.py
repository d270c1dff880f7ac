"""Saving and loading: model files, pickles that are read without running them, state dicts, safetensors."""
