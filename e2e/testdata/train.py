"""A data-parallel job in small: all ranks add up numbers."""
import os
import sys
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(1000)
end = time.monotonic() + float(sys.argv[1])
steps = 0
go = torch.ones(1)
while go.item():
    x.fill_(1)
    dist.all_reduce(x)
    steps += 1
    time.sleep(0.01)
    # Rank 0 decides, or some would wait for ever.
    go.fill_(time.monotonic() < end)
    dist.broadcast(go, 0)
assert x[0].item() == dist.get_world_size()
print(f"rank {dist.get_rank()} of {dist.get_world_size()} done", flush=True)
dist.destroy_process_group()
