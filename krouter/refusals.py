"""What a provider's words of an error say of the request, and how much of them is kept.

Providers quote what they were sent: a word that merely stands in the request is no word of theirs.
"""

from __future__ import annotations

from krouter.adapter import Call
from krouter.dialects.needs import has_images
from krouter.errors import Evidence
from krouter.errortext import ErrorText, without_echo
from krouter.features import Feature, named_in
from krouter.image_refusals import names_image_rejection
from krouter.vocabulary import known_code

LONG_NAME = 16
MOST_DETAIL = 2000
"""Characters of a provider's words that a route keeps."""


def refuses_images(text: ErrorText, call: Call) -> bool:
    """Whether the model takes no images, and the request holds some."""
    if not names_image_rejection(text.message):
        return False
    own_words = without_echo(text.message, call.body.raw)
    return names_image_rejection(own_words) and has_images(call.dialect.name, call.body)


def refused_features(text: ErrorText, call: Call) -> tuple[Feature, ...]:
    """Those the provider names itself. A name so long that it counts as a quote is always the
    provider's."""
    dialect = call.dialect.name
    named = named_in(text, dialect)
    if not named:
        return ()
    own = named_in(without_echo(text.message, call.body.raw), dialect)
    return tuple(f for f in named if f in own or len(f.word or f.name) >= LONG_NAME)


def kept_detail(evidence: Evidence, *, whole: bool) -> str:
    """What the route keeps of an error. A provider's words may quote the conversation or a
    credential: unless they may be kept `whole`, only an error code that is known is taken."""
    text, fault = evidence.text, str(evidence.fault or "")
    if whole:
        return (text.message or fault)[:MOST_DETAIL]
    return known_code(text.code) or known_code(text.type) or fault
