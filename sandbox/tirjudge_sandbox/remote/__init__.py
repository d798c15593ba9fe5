"""The `remote` backend: sandbox servers on other machines, several of them used as one."""
