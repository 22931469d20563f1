"""The modules of a pipeline: calling them, and what their failures mean."""
