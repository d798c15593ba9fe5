"""The messages between a sandbox server and its callers over HTTP."""
