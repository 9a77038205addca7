"""Runs answers.py and findings.py in forks of one process: starting Python for each question would take most of the
time of the scripts' tests. Prints its port, and ends with its stdin."""

import io
import os
import socket
import sys
import threading
import traceback

CODE = {}


def compiled(path):
    if path not in CODE:
        with open(path, encoding="utf-8") as file:
            CODE[path] = compile(file.read(), path, "exec")
    return CODE[path]


def run(folder, path, arguments, text):
    """As `python3 -IS PATH ARGUMENTS <TEXT`: the exit code, and what goes to stdout and stderr."""
    os.chdir(folder)
    path = os.path.abspath(path)
    sys.argv = [path, *arguments]
    sys.stdin, sys.stdout, sys.stderr = io.StringIO(text), io.StringIO(), io.StringIO()
    try:
        exec(compiled(path), {"__name__": "__main__", "__file__": path})
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except Exception:  # As Python itself does.
        traceback.print_exc()
        code = 1
    return code, sys.stdout.getvalue(), sys.stderr.getvalue()


def answer(connection):
    received = b""
    while not received.endswith(b"\0END\0"):
        more = connection.recv(1 << 16)
        if not more:
            return
        received += more
    text, folder, *arguments = received.decode().split("\0")[:-2]
    path, *arguments = [argument for argument in arguments if argument != "-IS"]
    code, out, error = run(folder, path, arguments, text)
    out = out.encode()
    connection.sendall(f"{code} {len(out)}\n".encode() + out + error.encode())


def main():
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    # What the questions import, once.
    import json, pathlib, re, signal, tarfile  # noqa: E401, F401

    print(listener.getsockname()[1], flush=True)
    # Forks from the main thread; this one only waits.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for path in sys.argv[1:]:
        compiled(path)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            try:
                answer(connection)
            finally:
                os._exit(0)
        connection.close()


if __name__ == "__main__":
    main()
