#!/usr/bin/env python
"""Django's command line."""

import os
import sys


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "transcriber.settings")
    from transcriber.config import ConfigError

    try:
        from transcriber.command_line import run

        run(sys.argv)
    except ConfigError as error:
        sys.exit(f"Configuration: {error}")


if __name__ == "__main__":
    main()
