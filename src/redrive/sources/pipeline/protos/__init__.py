"""The messages and services of the pipeline. The files that end in `_pb2` are made by `regenerate`, never by hand."""
