"""Forwards TCP connections from one network namespace to another: `forward.py LISTEN TARGET`, each
NAMESPACE/ADDRESS:PORT. A connection is made in the target's namespace, whatever the networks between
the two are."""

import asyncio
import ctypes
import os
import socket
import sys


def enter(namespace):
    """Moves this process to a namespace; `-` is the one it has."""
    if namespace == "-":
        return
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0) != 0:
            raise OSError(ctypes.get_errno(), f"can't enter {namespace}")
    finally:
        os.close(descriptor)


def parse(text):
    namespace, address = text.split("/")
    host, port = address.rsplit(":", 1)
    return namespace, host, int(port)


async def copy(reader, writer):
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except OSError:
        writer.transport.abort()


async def main(listen, target):
    (here, *address), (there, host, port) = parse(listen), parse(target)
    home = os.open("/proc/self/ns/net", os.O_RDONLY)
    enter(here)
    listener = socket.create_server(tuple(address), backlog=256)
    ctypes.CDLL(None).setns(home, 0)
    enter(there)

    async def connected(reader, writer):
        try:
            to_reader, to_writer = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        await asyncio.gather(copy(reader, to_writer), copy(to_reader, writer))
        to_writer.close()
        writer.close()

    server = await asyncio.start_server(connected, sock=listener)
    print("ready", flush=True)
    await server.serve_forever()


asyncio.run(main(*sys.argv[1:]))
