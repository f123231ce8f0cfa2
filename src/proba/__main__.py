"""`python -m proba` is `proba`."""

from proba.cli import main

if __name__ == "__main__":
    main()
