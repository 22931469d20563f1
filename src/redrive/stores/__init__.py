"""Where letters are kept. `contract` is the plug; every other module here is a socket."""
