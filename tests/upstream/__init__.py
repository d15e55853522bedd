"""A provider on a real socket that misbehaves on demand; `tests.upstream.script` has the words."""

from tests.upstream.book import Gate, Request
from tests.upstream.relay import ToolUser
from tests.upstream.script import Behaviour, parse
from tests.upstream.server import Upstream

__all__ = ["Behaviour", "Gate", "Request", "ToolUser", "Upstream", "parse"]
