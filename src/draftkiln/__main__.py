"""`python -m draftkiln`: the same program as the `draftkiln` command."""

from draftkiln.cli import main

raise SystemExit(main())
