"""python -m bench.orchestration.beater URL HOSTS SECONDS: the signs of life of that many hosts, until it is ended."""

import sys

from bench.orchestration.heartbeats import beat_for_all
from quartermaster.support.loop import run

if __name__ == "__main__":
    run(beat_for_all(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
