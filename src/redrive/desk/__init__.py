"""The operator's verbs as library functions, one idea a file; they know no terminal and no HTTP."""
