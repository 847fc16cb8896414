"""Figures of Syncopate's results, drawn from result directories; README.md describes their layout."""
