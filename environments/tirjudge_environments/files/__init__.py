"""Folders of files that a judged response left behind: read from rows, shown in prompts, found by programs.

A folder maps relative paths to contents. A row gives it as a mapping from a path to `{"text": ...}`,
`{"base64": ...}` or `{"diff": ...}`, as one diff of all files, or as the name of a folder, tar, zip or diff
beside the file of the rows.
Whoever wrote it is hostile: names stay below the folder, links are not followed, and sizes are bounded before
anything is unpacked.
"""
