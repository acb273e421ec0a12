"""docs/redis.md and docs/settings.md, made from the code they describe; tests compare them."""

from __future__ import annotations

from wainwright.keys import KEY_SPECS


def redis_document() -> str:
    """One row per key: name, type, writer, what it tells, the command that reads it."""
    lines = [
        "# What is in Redis",
        "",
        "Made from `wainwright/keys.py` by `wainwright keys --markdown`; a test compares them, and another walks a",
        "live stack's keys and fails on one that is not here.",
        "",
        "Every key starts with the prefix (`WAINWRIGHT_REDIS_PREFIX`, by default `wainwright:`). Values are text or",
        "JSON; times are milliseconds since 1970 by the Redis server's clock and end in `_ms`. `redis-cli` alone is",
        "enough to look at everything; `wainwright status` and `wainwright pod` read nothing else.",
        "",
        "| key | type | written by | tells | read it with |",
        "|---|---|---|---|---|",
    ]
    for spec in KEY_SPECS:
        cells = (f"`{spec.pattern}`", spec.type, spec.writer, spec.tells, f"`{spec.command.format('wainwright:')}`")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join([*lines, ""])
