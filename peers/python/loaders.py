"""Measures batches from two worker processes of torch's DataLoader: with torch's two methods of sharing
memory, and with thalweg."""

import contextlib

from rounds import taken, timed

SAMPLE, BATCH, BATCHES = 1_000_000, 64, 8


def batches(rounds):
    """Returns the seconds per batch; None without torch."""
    try:
        import torch
        from thalweg.torch import DataLoader
    except ImportError as error:
        print(f"loaders left out: {error}; peers/install python-torch")
        return None
    from torch.utils.data import DataLoader as Standard
    from torch.utils.data import Dataset

    torch.set_num_threads(1)

    class Samples(Dataset):
        """A data set whose only sample is already in memory, so that only the batch needs new memory."""

        def __init__(self):
            self.sample = torch.ones(SAMPLE // 4)

        def __len__(self):
            return BATCH * BATCHES

        def __getitem__(self, at):
            return self.sample

    def loader(kind, strategy=None):
        def begins(worker):
            torch.set_num_threads(1)
            if strategy is not None:
                torch.multiprocessing.set_sharing_strategy(strategy)

        return kind(Samples(), batch_size=BATCH, num_workers=2, persistent_workers=True, worker_init_fn=begins)

    def way(loaded):
        def some():
            return [int(batch.sum()) for batch in loaded]

        def once(_):
            (wall, cpu), sums = timed(some)
            assert sums == [BATCH * SAMPLE // 4] * BATCHES, "something else has come"
            return wall / BATCHES, cpu / BATCHES

        return once

    loaders = {
        "thalweg.torch.DataLoader": loader(DataLoader),
        "torch, file_descriptor": loader(Standard, "file_descriptor"),
        "torch, file_system": loader(Standard, "file_system"),
    }
    try:
        return taken({name: way(loaded) for name, loaded in loaders.items()}, rounds)
    finally:
        for loaded in loaders.values():
            # Stops the workers of this loader, which would otherwise run during the next rows.
            with contextlib.suppress(AttributeError):
                loaded._iterator._shutdown_workers()
