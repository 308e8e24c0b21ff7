"""What is found out about graphs by running them."""
