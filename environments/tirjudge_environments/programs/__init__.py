"""Programs of a dialogue: the text of their outcome, and sandboxes that record or replay executions."""
