"""What a running pipeline tells the tools of operators: `metrics` names it, every other file is one part."""
