"""Attacks on the working folder: its size, its number of files, its wiping, and the files read back."""

from __future__ import annotations

import pytest

from tests.rows import each_row
from tests.sandbox.targets import last_line
from tirjudge_sandbox import Status

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("writable")]


DISK = {
    "one file": "open('x', 'wb').write(bytes(17 << 20))",
    "many files": "for n in range(99): open(str(n), 'wb').write(bytes(1 << 18))",
    "reserved": "import os; os.posix_fallocate(os.open('x', os.O_CREAT | os.O_RDWR), 0, 1 << 30)",
    "removed but open": """
        import os
        held = []
        for n in range(99):
            held.append(open('x', 'wb', 0))
            held[-1].write(bytes(1 << 18))
            os.unlink('x')
    """,
    "mapped": """
        import mmap
        for n in range(99):
            file = open(str(n), 'w+b')
            file.truncate(1 << 18)
            mmap.mmap(file.fileno(), 1 << 18)[:] = bytes(1 << 18)
    """,
    "shared memory": "for n in range(99): open(f'/dev/shm/tirjudge-{n}', 'wb').write(bytes(1 << 18))",
    "copied": "import os, shutil\nopen('x', 'wb').write(bytes(1 << 18))\n"
    "for n in range(99): shutil.copyfile('x', str(n))",
}


@each_row("name", DISK)
async def test_the_disk_limit_holds(attack, name):
    execution = await attack(DISK[name])
    assert execution.status in (Status.ERROR, Status.SIGNAL)
    assert execution.exit_code in (1, None)


async def test_a_full_disk_is_empty_for_the_next(attack):
    fill = "for n in range(999): open(str(n), 'wb').write(bytes(1 << 20))"
    write = "print(open('x', 'wb').write(bytes(15 << 20)))"
    for _ in range(2):
        assert (await attack(fill)).status in (Status.ERROR, Status.OK)
        assert (await attack(write)).stdout == f"{15 << 20}\n"


INODES = {
    "files": "open(str(n), 'w').close()",
    "folders": "os.mkdir(str(n))",
    "links": "n or open('x', 'w').close(); os.link('x', str(n))",
    "symbolic links": "os.symlink('/', str(n))",
    "pipes": "os.mkfifo(str(n))",
    "long names": "open(f'{n:0250d}', 'w').close()",
}


@each_row("name", INODES)
async def test_the_number_of_files_is_limited(attack, name):
    execution = await attack(f"import os\nfor n in range(100_000): {INODES[name]}")
    assert last_line(execution).startswith(("OSError: [Errno 28]", "PermissionError", "OSError: [Errno 31]"))


async def test_a_sparse_file_is_limited(attack):
    execution = await attack("open('x', 'wb').truncate(1 << 40)", fetch=("x",))
    assert last_line(execution).startswith("OSError: [Errno 27]")
    assert execution.files["x"] == b""


async def test_sparse_files_cannot_flood_what_is_fetched(attack):
    source = "for n in 'abc': open(n, 'wb').truncate(8 << 20)"
    execution = await attack(source, fetch=("a", "b", "c"))
    assert sorted(execution.files) == ["a", "b"]


@pytest.mark.parametrize(
    "way",
    [
        "import os; os.mkfifo('x')",
        "import os; os.mkdir('x')",
        "import os; os.symlink('x', 'x')",
        "open('x','w'); import os; os.chmod('x', 0)",
    ],
)
async def test_unreadable_files_are_not_fetched(attack, way):
    execution = await attack(way, fetch=("x",))
    assert execution.status in (Status.OK, Status.ERROR)
    assert execution.files.get("x", b"") == b""


async def test_links_are_not_followed_by_what_is_fetched(attack):
    source = """
    import os
    os.mkdir('folder')
    open('folder/real', 'w').write('real')
    os.symlink('folder', 'linked')
    os.symlink('folder/real', 'link')
    os.symlink(os.__file__, 'module')
    """
    fetched = ("folder/real", "./folder//real", "linked/real", "link", "module")
    execution = await attack(source, fetch=fetched)
    assert execution.files == dict.fromkeys(fetched[:2], b"real")


async def test_deep_folders_are_wiped(attack):
    source = "import os\nfor n in range(3000):\n    os.mkdir('d')\n    os.chdir('d')\nprint('deep')"
    assert (await attack(source)).stdout == "deep\n"


async def test_unreadable_folders_are_wiped(attack):
    source = """
    import os
    os.makedirs('a/b')
    open('a/b/c', 'w')
    for path in ('a/b', 'a', '.'):
        os.chmod(path, 0)
    """
    assert (await attack(source)).status in (Status.OK, Status.ERROR)


async def test_hostile_names_are_wiped(attack):
    source = """
    import os
    for name in (b'\\xff', b'a\\nb', b'-rf', b'.wipe-1', b'0-1'):
        os.makedirs(os.path.join(name, name, name))
        os.symlink(b'/', name + b'/link')
        os.link(name + b'/link', name + b'/hard', follow_symlinks=False)
    """
    assert (await attack(source)).status is Status.OK


async def test_the_working_folder_cannot_be_removed_or_renamed(attack):
    source = """
    import os
    here = os.getcwd()
    for way in (lambda: os.rmdir(here), lambda: os.rename(here, here + '2'), lambda: os.unlink(here)):
        try:
            way()
        except OSError:
            print('refused')
    """
    assert (await attack(source)).stdout == "refused\n" * 3


async def test_waiting_for_a_pipe_is_ended_by_the_wall_limit(attack):
    execution = await attack("import os; os.mkfifo('x'); open('x')", wall_seconds=0.1)
    assert execution.status is Status.WALL_LIMIT
