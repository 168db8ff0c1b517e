"""``python -m gpujit``: hands over to the command line."""

from gpujit.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
