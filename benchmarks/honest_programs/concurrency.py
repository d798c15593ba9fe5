"""Programs that wait, run things at once, or start something: threads, asynchronous code, processes."""

from __future__ import annotations

from benchmarks.honest_programs.base import Honest

_CODE = {"response": "def add(a, b):\n    return a + b\n"}

PROGRAMS = (
    Honest(
        "a time limit by SIGALRM",
        """
import signal
def handler(number, frame): raise TimeoutError
signal.signal(signal.SIGALRM, handler)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    while True: sum(range(9))
except TimeoutError:
    print('timeout')
""",
        "timeout\n",
    ),
    Honest(
        "a time limit by a thread",
        """
import threading
result = []
worker = threading.Thread(target=lambda: result.append(sum(range(1000))), daemon=True)
worker.start()
worker.join(timeout=5)
print('timeout' if worker.is_alive() else result[0])
""",
        "499500\n",
    ),
    Honest(
        "a time limit by a pool",
        """
from concurrent.futures import ThreadPoolExecutor, TimeoutError
import time
with ThreadPoolExecutor(1) as pool:
    future = pool.submit(time.sleep, 0.2)
    try:
        future.result(timeout=0.01)
    except TimeoutError:
        print('too slow')
""",
        "too slow\n",
    ),
    Honest(
        "a race of ten threads",
        """
import threading
class Counter:
    def __init__(self): self.value, self._lock = 0, threading.Lock()
    def add(self):
        with self._lock: self.value += 1
counter = Counter()
threads = [threading.Thread(target=lambda: [counter.add() for _ in range(100)]) for _ in range(10)]
for t in threads: t.start()
for t in threads: t.join()
print(counter.value)
""",
        "1000\n",
    ),
    Honest(
        "a pool that maps",
        """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(max_workers=4) as pool:
    print(list(pool.map(lambda n: n * n, range(6))))
""",
        "[0, 1, 4, 9, 16, 25]\n",
    ),
    Honest(
        "a pool as it completes",
        """
import concurrent.futures
with concurrent.futures.ThreadPoolExecutor() as executor:
    futures = {executor.submit(pow, n, 2): n for n in range(50)}
    print(sum(f.result() for f in concurrent.futures.as_completed(futures)))
""",
        "40425\n",
    ),
    Honest(
        "a queue and its workers",
        """
import queue, threading
jobs, done = queue.Queue(), []
def work():
    while (job := jobs.get()) is not None:
        done.append(job * 2)
        jobs.task_done()
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for t in threads: t.start()
for n in range(9): jobs.put(n)
jobs.join()
for _ in threads: jobs.put(None)
print(sorted(done))
""",
        "[0, 2, 4, 6, 8, 10, 12, 14, 16]\n",
    ),
    Honest(
        "a timer",
        """
import threading
fired = threading.Event()
threading.Timer(0.01, fired.set).start()
print(fired.wait(5))
""",
        "True\n",
    ),
    Honest(
        "a barrier and a condition",
        """
import threading
barrier, order = threading.Barrier(3), []
def arrive(name):
    barrier.wait(5)
    order.append(name)
threads = [threading.Thread(target=arrive, args=(n,)) for n in 'abc']
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(order))
""",
        "['a', 'b', 'c']\n",
    ),
    Honest(
        "deep recursion in a thread",
        """
import sys, threading
sys.setrecursionlimit(20000)
threading.stack_size(64 << 20)
found = []
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
t = threading.Thread(target=lambda: found.append(depth(10000)))
t.start(); t.join()
print(found)
""",
        "[10000]\n",
    ),
    Honest(
        "asyncio.gather",
        """
import asyncio
async def fetch(n):
    await asyncio.sleep(0.001)
    return n * 10
async def main(): return await asyncio.gather(*map(fetch, range(4)))
print(asyncio.run(main()))
""",
        "[0, 10, 20, 30]\n",
    ),
    Honest(
        "asyncio.to_thread",
        """
import asyncio
async def main():
    return await asyncio.to_thread(sum, [1, 2, 3])
print(asyncio.run(main()))
""",
        "6\n",
    ),
    Honest(
        "asyncio and an executor",
        """
import asyncio
from concurrent.futures import ThreadPoolExecutor
async def main():
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as pool:
        return await asyncio.gather(*(loop.run_in_executor(pool, pow, 2, n) for n in range(5)))
print(asyncio.run(main()))
""",
        "[1, 2, 4, 8, 16]\n",
    ),
    Honest(
        "asyncio.wait_for",
        """
import asyncio
async def main():
    try:
        await asyncio.wait_for(asyncio.sleep(5), 0.01)
    except asyncio.TimeoutError:
        return 'cancelled'
print(asyncio.run(main()))
""",
        "cancelled\n",
    ),
    Honest(
        "multiprocessing.dummy",
        """
from multiprocessing.dummy import Pool
with Pool(2) as pool:
    print(pool.map(len, ['a', 'bb']))
""",
        "[1, 2]\n",
        needs="multiprocessing",
    ),
    Honest(
        "multiprocessing.pool.ThreadPool",
        """
from multiprocessing.pool import ThreadPool
pool = ThreadPool(3)
print(pool.map(str.upper, 'ab'))
pool.close()
""",
        "['A', 'B']\n",
        needs="multiprocessing",
    ),
    Honest(
        "another interpreter by subprocess",
        """
import subprocess, sys
done = subprocess.run([sys.executable, '-c', response + 'print(add(1, 2))'],
                      capture_output=True, text=True, timeout=5)
print(done.stdout.strip())
""",
        "3\n",
        _CODE,
        needs="processes",
    ),
    Honest(
        "a time limit by multiprocessing",
        """
import multiprocessing as mp
process = mp.get_context('fork').Process(target=print, args=('ran',))
process.start()
process.join(5)
print(process.exitcode)
""",
        "ran\n0\n",
        needs="processes",
    ),
    Honest(
        "a pool of processes",
        """
from concurrent.futures import ProcessPoolExecutor
with ProcessPoolExecutor(1) as pool:
    print(pool.submit(pow, 2, 3).result())
""",
        "8\n",
        needs="processes",
    ),
)
