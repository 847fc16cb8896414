"""Figures of Syncopate's results. Reads only result directories; see README.md for their layout."""
