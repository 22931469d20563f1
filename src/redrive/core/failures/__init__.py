"""What failures are made of: exceptions as plain data, what errors of others mean, what makes two failures the same."""
