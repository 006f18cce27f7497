"""`python -m draftkiln`: the same program as the `draftkiln` command."""

import sys

try:
    from draftkiln.cli import main

    code = main()
except KeyboardInterrupt:
    print("draftkiln: interrupted before it began", file=sys.stderr)
    code = 130
raise SystemExit(code)
