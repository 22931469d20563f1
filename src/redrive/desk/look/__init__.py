"""What operators look at: letters, groups, counts, explanations, the audit log."""
