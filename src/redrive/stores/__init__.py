"""Where letters are kept. `contract` says what every store promises; each package below keeps it in its own way."""
