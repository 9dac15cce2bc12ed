"""Side-by-side benchmarks: what the product promises, measured beside a peer or a raw limit in the same run.

`python -m bench --bench engine|cli|all [--quick]`. The full form judges the bars and writes docs/benchmarks.md; the
quick form runs the same code with small counts, checks that every object was dealt with, and judges no timing.
"""
