"""`python -m workers.beat`: sends the periodic tasks. Two may run at once: each slot of a task is taken only once."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from workers.celery_app import make_app
from workers.process import end_with_parent, set_up_logging, settings_or_exit, show_life


def main(argv: list[str] | None = None) -> int:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m workers.beat", description=__doc__)
    parser.add_argument("--exit-with-parent", action="store_true", help="stop when the process that started us is gone")
    arguments = parser.parse_args(argv)
    settings = settings_or_exit()
    set_up_logging(settings)
    from tasks.context import make_store

    if arguments.exit_with_parent:
        end_with_parent()
    app = make_app(settings)
    show_life(make_store(settings), "beat")
    with tempfile.TemporaryDirectory(prefix="wainwright-beat-") as folder:
        # Nothing is kept between runs: slots are guarded in Redis, and a schedule file shared by two beats breaks both.
        app.Beat(schedule=str(Path(folder) / "schedule"), quiet=True, loglevel=settings.log.level).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
