"""`python -m tests.upstream`: the provider by hand."""

from __future__ import annotations

import argparse
import signal
import threading

from tests.upstream import Request, Upstream, script

EXAMPLES = (
    ("ok", "a good reply"),
    ("glm:status=429;retry-after=7", "rate limited"),
    ("ds:status=529", "overloaded"),
    ("reset", "the connection is reset before any header"),
    ("reset=3", "the stream is reset after 3 events"),
    ("stall=1", "one event, then silence"),
    ("empty=text", "a whole reply with nothing in it"),
    ("garbage=html", "a web page with status 200"),
    ("chunks=20;slow-each=0.2", "a good but slow stream"),
)


def main() -> None:
    options = read_options()
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    report = None if options.quiet else print_request
    provider = Upstream(host=options.host, port=options.port, keys=options.key, on_request=report)
    with provider:
        print_welcome(provider.url)
        stopped.wait()


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.upstream",
        description="A provider that misbehaves as the model name or an x-upstream header says.",
        epilog=script.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=9100, help="port; 0 picks a free one (9100)")
    parser.add_argument(
        "--key", action="append", metavar="K", help="demand this key; may be given again"
    )
    parser.add_argument("--quiet", action="store_true", help="print no line for a request")
    return parser.parse_args()


def print_welcome(url: str) -> None:
    print(f"{url}/v1/chat/completions and {url}/v1/messages answer. Model names to try:")
    for name, meaning in EXAMPLES:
        print(f"  {name:30} {meaning}")
    print("All the words: python -m tests.upstream --help", flush=True)


def print_request(request: Request) -> None:
    print(f"{request.method} {request.path} {request.model}", flush=True)


if __name__ == "__main__":
    main()
