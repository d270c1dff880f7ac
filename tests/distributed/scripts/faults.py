"""Five updates, in the third of which rank 1, or all ranks together, do what the argument says."""

import os
import signal
import sys
import time

import dynet as dy
from dynet_compat.distributed import buckets

fault = sys.argv[1]
rank = dy.distributed.rank
pc = dy.ParameterCollection()
p = pc.add_parameters(4 if fault == "shape" and rank == 1 else 3)
trainer = dy.AdamTrainer(pc)
others = dy.ParameterCollection()
q = others.add_parameters(1)
other = dy.AdamTrainer(others)
for k in range(5):
    fails = rank == 1 and k == 2
    batch = dy.distributed.shard([1] if fault == "data" and fails else [1, 2, 3])
    dy.renew_cg()
    dy.esum([dy.squared_norm(p) for _ in batch]).backward()
    if (fault == "raise" and fails) or (fault == "together" and k == 2):
        raise KeyError("a word that is not there")
    if fault == "exit" and fails:
        sys.exit(3)
    if fault == "break" and fails:
        break
    if fault == "kill" and fails:
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "stop" and fails:
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault == "hang" and fails:
        time.sleep(1000)
    if fault == "midway" and fails:  # when the ranks have met
        buckets.Bucket.send = lambda bucket: os.kill(os.getpid(), signal.SIGSTOP)
    if fault in ("drift", "another") and fails:
        p.set_value([1, 2, 3])
    if fault == "busy" and k == 2 and dy.distributed.is_main:
        with dy.distributed.main_only():
            time.sleep(4)
    trainer.update()
    if fault == "another":
        dy.squared_norm(q).backward()
        other.update()
print("updates by", dy.distributed.sum(1), "ranks")
