"""`python -m quartermaster` is `qm`."""

from quartermaster.cli import main

if __name__ == "__main__":
    main()
