"""
Faults on real processes and files, and a checker that judges from outside.

`python -m tests.torture` runs the long forms; the files `test_*.py` are the short ones.
"""
