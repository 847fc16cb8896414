"""Methods with a server under MPI over real links of a limited rate, compared with the simulated cluster: four workers
on one host, their server on another one, and a switch between them. These are three network namespaces joined by
virtual links.

Needs SYNCOPATE_PROGRAM and SYNCOPATE_MPIEXEC, root, and tc with tbf.
"""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

PROGRAM, MPIEXEC = os.environ["SYNCOPATE_PROGRAM"], os.environ["SYNCOPATE_MPIEXEC"]
WORKERS = 4
RATE_BITS_PER_S = 40e6
# A frame of 1,514 bytes leaves 1,448 bytes for MPI, which uses some of them for its own headers.
GOODPUT_BYTES_PER_S = RATE_BITS_PER_S / 8 * 1448 / 1514
TOLERANCE = 0.10
# Messages are sent at once, as in the model. Otherwise MPI would wait for the receiver's consent to a long message, and
# the consent would wait in the queue behind outgoing models.
MPI_SENDS_AT_ONCE = dict.fromkeys(("btl_tcp_eager_limit", "btl_tcp_rndv_eager_limit", "btl_tcp_max_send_size"), "1000000")
# TCP lets messages of several connections share a link evenly, but the model sends one after the other. With usual
# windows, a step of backup workers took 0.31 s here, and 0.23 s in the model. With these settings, whole messages wait
# in the queue of the switch that limits the rate. The switch sends them in the model's order.
KERNEL = {"ip_forward": 1, "tcp_slow_start_after_idle": 0, "tcp_wmem": "4096 1048576 8388608",
          "tcp_rmem": "4096 1048576 8388608", "tcp_limit_output_bytes": 4194304}

EXPERIMENT = """name = "shaped"
seeds = [1]
budget.steps = 40
[cluster]
workers = {workers}
micro_batch_s = 0.05
micro_batches = 1
pace = "emulate"
[network]
kind = "ring"
latency_s = 2e-4
bandwidth_bytes_per_s = 1e9
server = {{ bandwidth_bytes_per_s = {rate} }}
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "quadratic"
optimizer.name = "sgd"
learning_rate = {{ schedule = "constant", peak = 0.01 }}
[models.quadratic]
dimension = 50000
[evaluation]
every_steps = 40
[[methods]]
algorithm = "backup-workers"
backups = 1
[[methods]]
algorithm = "async-sgd"
"""

# A script that runs a command on the host of this name, as ssh would.
AGENT = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
host=$1
shift
exec ip netns exec "$host-{suffix}" bash -c "$*"
"""


def why_not() -> str:
    search = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [name for name in ("ip", "tc") if not shutil.which(name, path=search)]
    if missing:
        return f"there is no {' and no '.join(missing)} (iproute2)"
    return "" if os.geteuid() == 0 else "namespaces of the network need root"


@unittest.skipIf(why_not(), why_not())
class ShapedLinks(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.directory = Path(temporary.name)
        self.suffix = str(os.getpid())
        workers, server, switch = names = [f"{place}-{self.suffix}" for place in ("workers", "server", "switch")]
        for name in names:
            self.call("ip", "netns", "add", name)
            self.addCleanup(self.call, "ip", "netns", "del", name)
            for key, value in KERNEL.items():
                self.call("ip", "netns", "exec", name, "sh", "-c", f"echo {value} >/proc/sys/net/ipv4/{key}")
        for number, name in enumerate((workers, server), 1):
            port = f"port{number}"
            self.call("ip", "link", "add", "link0", "netns", name, "type", "veth", "peer", "name", port, "netns", switch)
            for place, command in ((name, f"addr add 10.231.{number}.1/24 dev link0"), (name, "link set link0 up"),
                                   (name, "link set lo up"), (switch, f"addr add 10.231.{number}.254/24 dev {port}"),
                                   (switch, f"link set {port} up"),
                                   (name, f"route add default via 10.231.{number}.254 initcwnd 300 initrwnd 300")):
                self.call("ip", "-n", place, *command.split())
            shaped = self.call("ip", "netns", "exec", switch, "tc", "qdisc", "add", "dev", port, "root", "tbf", "rate",
                               f"{RATE_BITS_PER_S:.0f}bit", "burst", "16kb", "latency", "2s", check=False)
            if shaped.returncode != 0:
                self.skipTest(f"no rate limits are to be had here: {shaped.stderr.strip()}")

    def call(self, *command: str, check: bool = True, **options) -> subprocess.CompletedProcess:
        environment = os.environ | {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"} | options.pop("environment", {})
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **options)
        if check:
            self.assertEqual(done.returncode, 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}")
        return done

    def write(self, name: str, text: str) -> Path:
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def test_steps_take_what_the_simulated_cluster_says(self):
        file = self.write("e.toml", EXPERIMENT.format(workers=WORKERS, rate=GOODPUT_BYTES_PER_S))
        agent = self.write("agent.sh", AGENT.format(suffix=self.suffix))
        launcher = self.write("mpirun-on-both", f'#!/bin/bash\nexec "{MPIEXEC}" --host workers:{WORKERS},server:1 "$@"\n')
        both = {f"{prefix}_MCA_{name}": value for prefix, values in {
            "OMPI": {"plm_rsh_agent": str(agent), "plm_rsh_no_tree_spawn": "1", "btl": "tcp,self,vader",
                     "btl_tcp_if_include": "link0", **MPI_SENDS_AT_ONCE, "oob_tcp_if_include": "link0", "orte_keep_fqdn_hostnames": "1"},
            "PRTE": {"plm_ssh_agent": str(agent), "plm_ssh_no_tree_spawn": "1"},
        }.items() for name, value in values.items()}
        done = self.call("ip", "netns", "exec", f"workers-{self.suffix}", PROGRAM, "compare", str(file), "--results",
                         "results", "--json", "errors.json", "--mpiexec", str(launcher), cwd=self.directory,
                         timeout=300, environment=both | {"OMPI_ALLOW_RUN_AS_ROOT": "1",
                                                          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
        runs = json.loads((self.directory / "errors.json").read_text(encoding="utf-8"))["runs"]
        self.assertEqual([run["method"] for run in runs], ["backup-workers", "async-sgd"], done.stdout)
        for run in runs:
            simulated, measured = (run[on]["step_time_s"] for on in ("simulated", "mpi"))
            print(f"{run['method']}: {simulated:.4f} s per step simulated, {measured:.4f} measured")
            self.assertLess(abs(simulated - measured), TOLERANCE * measured, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
