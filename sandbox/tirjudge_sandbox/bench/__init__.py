"""What one small program costs: sandboxes beside what people use instead."""
