"""Random collectives on two and four cards, in both modes, compared with gloo on the CPU.

Run ``python random_collectives.py --count N --first SEED``; each group of ranks makes N calls.
"""

from __future__ import annotations

import argparse
import sys
import time

from collective_calls import check
from ranks import Failed, Server, join

PER_REQUEST = 100


def main() -> int:
    """Return the number of groups that found a difference."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    server, failed = Server(), 0
    for size in (2, 4):
        for mode in ("eager", "lazy"):
            began = time.monotonic()
            ranks = server.start(size, PT_HPU_LAZY_MODE=str(int(mode == "lazy")))
            try:
                ranks(join)
                for seed in range(arguments.first, arguments.first + arguments.count, PER_REQUEST):
                    last = arguments.first + arguments.count
                    ranks(check, seed, min(PER_REQUEST, last - seed))
                outcome = "none failed"
            except Failed as error:
                failed += 1
                outcome = (
                    f"FAILED {error}\nrepeat: make collectives COUNT={PER_REQUEST} FIRST={seed}"
                )
            ranks.close()
            seconds = time.monotonic() - began
            print(f"{size} cards, {mode} mode, {seconds:.0f} s: {outcome}", flush=True)
    server.close()
    return failed


if __name__ == "__main__":
    sys.exit(main())
