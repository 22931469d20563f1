"""What a worker does in addition to running letters: it rescues, broadcasts and carries out plans."""
