"""The judge over HTTP: the server, its client, and reward functions for OpenRLHF, TRL and verl."""
