"""One copy by `thalweg.copy_tree`: executors.py threads|processes|dask|dask-idle SOURCE COPY. Every executor has two
workers. `dask-idle` starts Dask, but copies with threads."""

import sys
from concurrent.futures import ProcessPoolExecutor

import thalweg


def main() -> None:
    way, source, copy = sys.argv[1:]
    if way == "threads":
        thalweg.copy_tree(source, copy)
    elif way == "processes":
        with ProcessPoolExecutor(2) as pool:
            thalweg.copy_tree(source, copy, executor=pool)
    else:
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
            thalweg.copy_tree(source, copy, executor=client if way == "dask" else None)


if __name__ == "__main__":
    main()
