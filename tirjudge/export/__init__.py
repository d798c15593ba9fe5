"""Result files in the formats of other programs: logs of Inspect."""
