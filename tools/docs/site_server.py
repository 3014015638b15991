"""Serves a folder by HTTP and HTTPS: site_server.py FOLDER CERTIFICATE KEY."""

from __future__ import annotations

import ssl
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer


def main(folder: str, certificate: str, key: str) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    plain = ThreadingHTTPServer(("0.0.0.0", 80), handler)
    encrypted = ThreadingHTTPServer(("0.0.0.0", 443), handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    encrypted.socket = context.wrap_socket(encrypted.socket, server_side=True)
    threading.Thread(target=plain.serve_forever, daemon=True).start()
    encrypted.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
