"""What was logged: rounds, their schema and checks, and the sources they are read from."""
