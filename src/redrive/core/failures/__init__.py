"""What failures are made of: exceptions as plain data, what known errors mean, what makes two failures the same."""
