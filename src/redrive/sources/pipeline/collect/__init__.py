"""Dead and quarantined documents as letters of the store, and letters as documents for their node again."""
