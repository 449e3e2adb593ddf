"""What people look at: figures and, from them, pages."""
