"""The inbox as a server of its own: uvicorn with httptools, a deadline for requests, and an orderly end."""
