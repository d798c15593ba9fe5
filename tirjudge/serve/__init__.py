"""The judge as a web service, and what asks it: a client, and reward functions for TRL and verl."""
