"""A local page that shows runs while they go on. It reads run folders, and writes only the wish to stop."""
