"""Tasks: the contract, and the five Brax robots."""
