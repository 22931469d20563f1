"""`redrive inbox`: run the webhook inbox, send samples to it, look at its sources."""
