"""A real server that comes with the package: started on first use, gone some seconds after the last user."""
