"""What arrived, read: which event it is, and who handles it. Owns no request and no store."""
