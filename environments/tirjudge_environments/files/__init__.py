"""Folders of files that a judged response left behind: read from rows, shown in prompts, found by programs.

A folder maps relative paths to contents. A row gives it as a mapping from a path to `{"text": ...}`,
`{"base64": ...}` or `{"diff": ...}`, as one diff of all files, or as the name of a folder, tar, zip or diff
beside the file of the rows.
Whoever wrote it is hostile: names stay below the folder, links are not followed, and sizes are bounded before
anything is unpacked.
"""

from tirjudge_environments.files.folder import (
    MOST_BYTES,
    MOST_FILES,
    NO_FILES,
    BadFolder,
    Folder,
    folder_of,
    shown_path,
)
from tirjudge_environments.files.listing import ListedFile, folder_heading, listed_files, listing, unlisted
from tirjudge_environments.files.placing import placed, program_of, shared, size_of, with_room
from tirjudge_environments.files.reading import read_folder

__all__ = [
    "MOST_BYTES",
    "MOST_FILES",
    "NO_FILES",
    "BadFolder",
    "Folder",
    "ListedFile",
    "folder_heading",
    "folder_of",
    "listed_files",
    "listing",
    "placed",
    "program_of",
    "read_folder",
    "shared",
    "shown_path",
    "size_of",
    "unlisted",
    "with_room",
]
