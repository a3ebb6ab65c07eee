"""Command line: ``python -m benchmarks [NAME ...] [--quick] [--device cpu|cuda] [--list] ...``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import report, runner
from benchmarks.harness import Settings

DEFAULT_FOLDER = Path("build/bench")


def build_parser() -> argparse.ArgumentParser:
    """Describe the options."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure the speed and memory of sikagp against its alternatives.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks to run; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller cases, less time")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="threads of the processor"
    )
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_FOLDER, help=f"folder (default: {DEFAULT_FOLDER})"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep what an interrupted run has measured"
    )
    parser.add_argument("--list", action="store_true", help="list the benchmarks and stop")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="run nothing; write the tables and figures in the folder into the documentation",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns the exit status."""
    parser = build_parser()
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(runner.NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; try --list")
    if options.threads < 1:
        parser.error(f"--threads must be at least 1, got {options.threads}")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("--device cuda: this installation of torch sees no CUDA device")
    names = options.names or list(runner.NAMES)
    if options.list:
        return _list(names)
    if options.write_docs:
        return report.write(names, options.out)
    settings = Settings(quick=options.quick, device=options.device, threads=options.threads)
    return _run(names, settings, options.out, resume=options.resume)


def _list(names: Sequence[str]) -> int:
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {runner.question(runner.load_benchmark(name))}")
    return 0


def _run(names: Sequence[str], settings: Settings, folder: Path, *, resume: bool) -> int:
    try:
        for name in names:
            runner.run(name, settings, folder, resume=resume)
    except KeyboardInterrupt:
        print(f"\ninterrupted; finished results are in {folder}", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
