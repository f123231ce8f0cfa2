"""The history of a solve: an observer that records it, and the file that keeps it (DIR/evolution.npz)."""
