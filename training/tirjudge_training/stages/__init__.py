"""The stages that runs are made of."""
