"""A TCP proxy on loopback that can lose one direction: a network that drops packets one way."""

import contextlib
import socket
import threading


class OneWayProxy:
    """Forwards connections to a port. While `deaf` is set, what the server answers is lost; connections stay open."""

    def __init__(self, target):
        self.deaf = threading.Event()
        self.lost_bytes = 0
        self._target = target
        self._sockets = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._closed = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        while not self._closed:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._sockets += [client, server]
            for source, sink, answers in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._forward, args=(source, sink, answers), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _forward(self, source, sink, answers):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if answers and self.deaf.is_set():
                    self.lost_bytes += len(data)
                    continue
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)
        for end in self._sockets:
            end.close()
