"""What is refused at the door, and in which words. Knows no store and no setting."""
