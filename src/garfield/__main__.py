"""``python -m garfield`` is ``garfield``, for where scripts are not on the path."""

from garfield.cli import main

if __name__ == "__main__":
    main()
