"""Memory: predict it, account for it, plan it, and keep it under a budget."""
