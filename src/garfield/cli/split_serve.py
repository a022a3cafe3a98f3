"""`garfield split serve`: the server beside the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from garfield.cli.flags import Flags, in_panels, spelt_out
from garfield.cli.shared import AsJson, print_json, print_line

if TYPE_CHECKING:
    from garfield.core.config import Setting
    from garfield.core.events import Event

_TITLES = {"": "Server", "batching": "COS batches", "connection": "Store"}


def _panels() -> dict[str, list[Setting]]:
    from garfield.core.config import settings_of
    from garfield.split.server.settings import ServeSettings

    return in_panels(settings_of(ServeSettings), _TITLES.__getitem__)


def _serve(
    *, given: Annotated[dict[str, Any], Flags(_panels)], as_json: AsJson = False
) -> int | None:
    """Run the server beside the store that computes features for many tenants.

    It holds no state: start several, and name all of them to clients. Every read of the store
    is made with the asking tenant's own token. Ctrl-C or SIGTERM ends it.
    """
    from garfield.core.config import check_numbers, made
    from garfield.split.server.serving import serve
    from garfield.split.server.settings import ServeSettings

    def tell(event: Event) -> None:
        if as_json:
            print_json(event)
        elif event["event"] == "listening":
            print_line(f"Listening at {event['url']}, memory held by {event['limited_by']}.")

    settings = made(ServeSettings, given)
    check_numbers(settings)
    serve(settings, tell)
    return None


serve = spelt_out(_serve)
