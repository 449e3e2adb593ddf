"""A forked child of a process that has computed on several threads: it works, or says at once why it does not."""

import os
import subprocess
import sys

SCRIPT = """
import os, sys, time
import torch
from torch import nn
import fedfdp

torch.manual_seed(0)
x, y = torch.randn(400, 200), torch.arange(400) % 2
holders = fedfdp.Federation.from_clients({"north": (x[:250], y[:250]), "south": (x[250:], y[250:])})
net = nn.Sequential(nn.Linear(200, 300), nn.Tanh(), nn.Linear(300, 2))
private = fedfdp.DPSGD(delta=1e-5, epsilon=50.0, sigma=2.0, q=0.5, accountant="rdp", sigma_loss=5.0)

def run(threads=None):
    method = fedfdp.FedFDP(lr=0.5)
    return fedfdp.train(net, holders, algorithm=method, privacy=private, rounds=2, threads=threads).model[2].bias

whole = run(threads=2)
child = os.fork()
if child == 0:
    code = 1
    try:
        assert torch.allclose(run(), whole, rtol=1e-4), "other numbers"
        try:
            run(threads=2)
        except fedfdp.FedFDPError as refused:
            print(refused, flush=True)
        code = 0
    finally:
        os._exit(code)
for _ in range(600):
    ended, code = os.waitpid(child, os.WNOHANG)
    if ended:
        sys.exit(os.waitstatus_to_exitcode(code))
    time.sleep(0.1)
os.kill(child, 9)
sys.exit("the child hung")
"""


def test_a_forked_child_trains_on_one_thread_and_refuses_more():
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    ran = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("threads = 2: a forked process has one: torch's threads do not survive a fork; ")
    assert len(ran.stdout.splitlines()) == 1
