"""Figures of Syncopate's results, drawn from directories of runs, whose layout README.md describes."""
