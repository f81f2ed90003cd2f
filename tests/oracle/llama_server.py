"""The server inside an unpacked `xllamacpp` wheel, for who starts servers by a command line.

    python llama_server.py WHEEL -m MODEL --host HOST --port PORT --slot-save-path DIR [FLAGS]

FLAGS are those of `serve.py`.
"""

from __future__ import annotations

import os
import sys

import serve

_NAMED = ("-m", "--port", "--slot-save-path")


def main() -> None:
    wheel, *words = sys.argv[1:]
    given = dict(zip(words[::2], words[1::2], strict=False))
    flags = [
        word
        for name, value in given.items()
        if name not in (*_NAMED, "--host")
        for word in (name, value)
    ]
    sys.argv[1:] = [wheel, *(given[name] for name in _NAMED), *flags]
    reading, _ = os.pipe()  # serve.py ends with its standard input, which nobody holds here
    os.dup2(reading, 0)
    serve.main()


if __name__ == "__main__":
    main()
