"""The cases of a combo file: under these circumstances, this happens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel

from krouter.problems import did_you_mean

GAPS = ("…", "...", "*")
"""How any text in a name is written, and, standing alone, any number of entries."""

Need = Literal["image", "pdf", "audio", "video", "tools", "json"]
DialectName = Literal["chat", "messages", "responses", "gemini"]
Word = Literal["whole", "empty", "cut", "error"]

FAULTS: tuple[str, ...] = tuple(
    """
    image too-large model-gone barred quota quota-reset wrong-key 429-reset refused reset dns tls
    garbage error-200 error-first error-midway cut reset-midway timeout stall pings filter feature
    empty slow halting
    """.split()
)
"""What can befall a request at a provider, statuses aside; as `krouter drill --faults` tells it."""


def _one_of(known: Sequence[str], what: str) -> Callable[[object], object]:
    def check(value: object) -> object:
        if value in known:
            return value
        raise ValueError(_unknown(value, known, what))

    return check


def _unknown(value: object, known: Sequence[str], what: str) -> str:
    near = did_you_mean(value, known) if isinstance(value, str) else ""
    return f"no such {what}. {near}" if near else f"no such {what}; known: {', '.join(known)}"


def _fault(value: object) -> str | int:
    if isinstance(value, int) and not isinstance(value, bool) and 300 <= value <= 599:
        return value
    if isinstance(value, str) and value in FAULTS:
        return value
    if isinstance(value, str) and value and not value.isdecimal():
        raise ValueError(_unknown(value, FAULTS, "fault"))
    raise ValueError("should be a status from 300 to 599, such as 529, or a fault, such as timeout")


def _faults(value: object) -> object:
    """One for every time, or a list: one for each time that it is asked, None for an answer. The
    last one goes on."""
    if not isinstance(value, list | tuple):
        return _fault(value)
    if not value:
        raise ValueError("should have something in it: one fault for each time that it is asked")
    return tuple(None if each is None else _fault(each) for each in value)


def _as_it_is(value: object) -> object:
    return value


def _name(value: str) -> str:
    if not value.strip() or len(value) > 300:
        raise ValueError("a name has 1 to 300 characters")
    return value


_FROM = 'Who answers is written with a model, as "glm/…", or as {"from": "glm"}'
_FAULT_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 300, "maximum": 599}, {"enum": list(FAULTS)}]
}
Fault = str | int
Faults = Annotated[
    Fault | tuple[Fault | None, ...],
    PlainValidator(_faults),
    PlainSerializer(_as_it_is),
    WithJsonSchema(
        {
            "anyOf": [
                *_FAULT_SCHEMA["anyOf"],
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {"anyOf": [*_FAULT_SCHEMA["anyOf"], {"type": "null"}]},
                },
            ]
        }
    ),
]
EntryName = Annotated[str, AfterValidator(_name), Field(json_schema_extra={"minLength": 1})]
Share = Annotated[float, Field(strict=True, ge=0, le=1)]


class Part(BaseModel):
    """A part of a combo file: camelCase there, and nothing in it that is not known."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True
    )


class Given(Part):
    """The circumstances of a case: the request, and what has become of the providers."""

    needs: tuple[Annotated[Need, BeforeValidator(_one_of(get_args(Need), "need"))], ...] = Field(
        default=(), description="What the request carries or asks for."
    )
    dialect: Annotated[DialectName, BeforeValidator(_one_of(get_args(DialectName), "dialect"))] = (
        Field(default="chat", description="Wire format of the request.")
    )
    stream: Annotated[bool, Field(strict=True)] = Field(
        default=False, description="Whether it asks for a stream."
    )
    fail: dict[EntryName, Faults] = Field(
        default_factory=dict,
        description="Who fails, and how: a status or a fault, each time; or a list, one for each"
        " time that it is asked, of which the last goes on, null for an answer.",
    )
    locked: tuple[EntryName, ...] = Field(
        default=(), description="Whose accounts are all locked, since their quota is spent."
    )
    quota: dict[EntryName, Share] = Field(
        default_factory=dict, description="What is left of whose quota, from 0 to 1."
    )
    turn: Annotated[int, Field(strict=True)] = Field(
        default=1, ge=1, le=10_000, description="Which request of the rotation it is."
    )


class Reply(Part):
    """What the caller gets. A status or a word alone stands for an object of only that, and so does
    the name of an entry."""

    from_: EntryName | None = Field(
        default=None, alias="from", description="The entry that answers; of a fusion the judge."
    )
    status: Annotated[int, Field(strict=True)] | None = Field(
        default=None, ge=100, le=599, description="The HTTP status."
    )
    came: Annotated[Word, BeforeValidator(_one_of(get_args(Word), "outcome"))] | None = Field(
        default=None,
        description="A whole answer, an empty one, one that is cut short by an error, or an error.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_short(cls, value: object) -> object:
        match value:
            case Reply():
                return value
            case dict() if value:
                return value
            case bool():
                pass
            case int():
                return {"status": value}
            case str() if "/" in value:
                return {"from": value}
            case str():
                words = get_args(Word)
                if value not in words:
                    fault = _unknown(value, words, "outcome")
                    raise ValueError(f"{fault}. {_FROM}" if "known" in fault else fault)
                return {"came": value}
        raise ValueError("should be a status, a word, an entry, or an object that tells something")


class ExpectCase(Part):
    """One test of the combo: under these circumstances, this happens."""

    given: Given = Field(default=Given(), description="The circumstances.")
    order: tuple[EntryName, ...] | None = Field(
        default=None, min_length=1, description="The combo's entries in the order planned."
    )
    attempts: tuple[EntryName, ...] | None = Field(
        default=None, description="The entries that are asked, in order."
    )
    reply: Reply | None = Field(default=None, description="What the caller gets.")

    @model_validator(mode="after")
    def _tells_something(self) -> ExpectCase:
        if self.order is None and self.attempts is None and self.reply is None:
            raise ValueError("expects nothing: say its order, its attempts or its reply")
        return self


def complete_schema(schema: dict[str, Any]) -> None:
    """Adds the short forms of a reply to the JSON Schema of a combo."""
    reply = schema["$defs"]["ExpectCase"]["properties"]["reply"]
    reply["anyOf"] = [
        {"type": "integer", "minimum": 100, "maximum": 599},
        {"enum": list(get_args(Word))},
        {"type": "string", "pattern": "/"},
        *reply["anyOf"],
    ]
