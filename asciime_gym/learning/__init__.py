"""What several algorithms learn with."""
