"""Benchmarks of sikagp: ``python -m benchmarks --list`` names them and the questions they answer.

Each module with a question has three functions: ``cases(settings)`` lists what to measure,
``measure(case, settings)`` measures one case, and ``tables(result)`` and ``draw(result)`` show what
was found, from the JSON file alone.
"""

import os

# The profiler's own notices would break up the progress line.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")
