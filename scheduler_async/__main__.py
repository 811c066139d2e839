"""`python -m scheduler_async` is `scheduler-async`."""

from scheduler_async.cli import main

if __name__ == "__main__":
    main()
