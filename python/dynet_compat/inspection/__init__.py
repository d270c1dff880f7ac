"""Looking at a program: its graph, its batches, its time, the texts that repr gives."""
