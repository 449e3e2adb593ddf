"""Records from your own files: tables, archives and images, read by public facts alone."""
