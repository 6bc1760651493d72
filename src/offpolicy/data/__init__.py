"""What was logged: rounds, their schema and checks, and where they are read from."""
