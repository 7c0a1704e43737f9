"""`shop.py PORT DATABASE THREADS`: a shop whose capacity is that of its threads, not the machine's.

A page mostly waits, as for a payment provider, and then writes a row into a SQLite database. This
locks the database, so one thread at a time does it. SIGUSR1 hangs half of the threads for good.
"""

import random
import signal
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any

#: How long a page waits: at least, and how much longer on average.
LEAST_S, MORE_S = 0.03, 0.12
#: How long a page locks the database.
LOCKED_S = 0.004
_PAGE = b"<!doctype html><title>Shop</title><p>The shop."


class Shop(ThreadingMixIn, HTTPServer):
    """An HTTP server in which requests wait until a thread of the pool is free."""

    request_queue_size = 4096

    def __init__(self, port: int, database: Path, threads: int) -> None:
        super().__init__(("127.0.0.1", port), Page)
        self.database = database
        self._half = threads // 2
        self._pool = ThreadPoolExecutor(threads)
        with sqlite3.connect(database) as connection:
            # With a write-ahead log, no page waits for the disk, which others use as well.
            connection.executescript("PRAGMA journal_mode=WAL")
            connection.execute("CREATE TABLE IF NOT EXISTS views (at REAL, path TEXT)")

    def process_request(self, request: Any, client_address: Any) -> None:
        self._pool.submit(self.process_request_thread, request, client_address)

    def hang_half(self, *_args: object) -> None:
        for _ in range(self._half):
            self._pool.submit(threading.Event().wait)


class Page(BaseHTTPRequestHandler):
    server: Shop

    def do_GET(self) -> None:
        time.sleep(LEAST_S + random.expovariate(1 / MORE_S))
        connection = sqlite3.connect(self.server.database, timeout=60)
        with connection:
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(LOCKED_S)
            connection.execute("INSERT INTO views VALUES (?, ?)", (time.time(), self.path))
        connection.close()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(_PAGE)))
        self.end_headers()
        self.wfile.write(_PAGE)

    def log_message(self, *_: object) -> None:
        pass


def main(port: str, database: str, threads: str) -> None:
    with Shop(int(port), Path(database), int(threads)) as shop:
        signal.signal(signal.SIGUSR1, shop.hang_half)
        shop.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
