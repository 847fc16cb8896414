"""Writes methods_2026.json: results of the methods of 2025 and 2026, and of the federated classics, by the independent
implementation in methods_2026_reference.py, for tests/algorithms/methods_2026_test.cpp.

    python3 tests/golden/methods_2026.py [--check]

`--check` compares with the file. The tolerance allows for matrix products that round differently on other processors.

The problem: worker i's gradient at x is h x - b_i, element by element, with h_j = (32 + j mod 40) / 64 and
b_ij = round(64 sin(1 + 1.7 i + 0.6 j)) / 64, all exact in single precision. x starts at 1.

If workers share h, the mean of their models moves as if each model were the mean. So methods that differ only in the
workers' own models have the curved problem: h_ij = (32 + (j + 13 i) mod 40) / 64.
"""
import functools
import json
import math
import pathlib
import sys

import numpy as np

import methods_2026_reference as reference

SHAPES = [(8, 6), (6,)]
SIZE = sum(int(np.prod(shape)) for shape in SHAPES)
WORKERS = 3
TIMES = [1.0, 1.31, 2.73]
H = np.array([(32 + j % 40) / 64 for j in range(SIZE)])
B = np.array([[round(64 * math.sin(1 + 1.7 * i + 0.6 * j)) / 64 for j in range(SIZE)] for i in range(WORKERS)])
START = np.ones(SIZE)
CURVED = np.array([[(32 + (j + 13 * i) % 40) / 64 for j in range(SIZE)] for i in range(WORKERS)])
SAMPLES = [10, 40, 25]


def gradient(worker, x):
    return H * x - B[worker]


def curved_gradient(worker, x):
    return CURVED[worker] * x - B[worker]


def forever(value):
    while True:
        yield value


def durations():
    return [forever(time) for time in TIMES]


def local_ends(x, steps, rate):
    ends = []
    for worker in range(WORKERS):
        y = x.copy()
        for _ in range(steps):
            y = y - rate * gradient(worker, y)
        ends.append(y)
    return ends


def muon_gradient(step, size):
    return np.array([math.sin(0.7 * j + 1.3 * step + 0.05 * j * step) for j in range(size)])


def muon_cases():
    shapes = [(6, 4), (4, 6), (5, 5), (3, 7), (7,)]
    size = sum(int(np.prod(shape)) for shape in shapes)
    forms = [dict(rule="jordan", coefficients="JORDAN", beta=0.95, nesterov=True, decay=0.0),
             dict(rule="spectral", coefficients="DION", beta=0.9, nesterov=False, decay=0.1),
             dict(rule="moonlight", coefficients="JORDAN", beta=0.95, nesterov=True, decay=0.1)]
    cases = []
    for form in forms:
        options = dict(form, coefficients=getattr(reference, form["coefficients"]), adamw=(3,), adamw_factor=0.015,
                       adamw_decay=form["decay"])
        muon = reference.Muon(**options)
        theta = np.array([math.cos(0.3 * j) for j in range(size)])
        for step in range(6):
            theta = muon.step(theta, muon_gradient(step, size), shapes, lr=0.05)
        cases.append(dict(form, shapes=shapes, steps=6, rate=0.05, result=theta.tolist()))
    return cases


ITERATE_STEPS = 12


def rates(name):
    """The rate of step k: constant, or a warm-up of 4 steps followed by a fall."""
    return [0.05 if name == "constant" else 0.05 * min(1, (k + 1) / 4) * (1 - k / 24) for k in range(ITERATE_STEPS)]


def iterate_cases():
    """Single-worker runs on worker 0's objective, with the gradient at y: y, x and z after the last step."""
    forms = [dict(optimizer="schedule-free-sgd", rates="constant", beta=0.9, decay=0.0),
             dict(optimizer="schedule-free-sgd", rates="varied", beta=0.6, decay=0.1),
             dict(optimizer="schedule-free-adamw", rates="varied", beta=0.9, decay=0.1, kind="adamw"),
             dict(optimizer="schedule-free-adamw", rates="varied", beta=0.9, decay=0.1, kind="adamw", decay_at="z"),
             dict(optimizer="schedule-free-adamw", rates="varied", beta=0.8, decay=0.1, kind="adamw-paper", p=1.0),
             dict(optimizer="schedule-free-sgd", rates="varied", beta=0.9, decay=0.1, r=1.5),
             dict(optimizer="gpa", rates="varied", mu_y=0.7, mu_x=0.9, decay=0.1, base="adamw"),
             dict(optimizer="gpa", rates="varied", mu_y=1.0, mu_x=0.8, decay=0.1, base="sgd"),
             dict(optimizer="gpa", rates="constant", mu_y=0.7, mu_x=0.0, decay=0.1, base="adamw")]
    cases = []
    for form in forms:
        options = {key: value for key, value in form.items() if key not in ("optimizer", "rates")}
        if form["optimizer"] == "gpa":
            method = reference.GPA(START, 0.05, **options)
        else:
            method = reference.ScheduleFree(START, **options)
        for rate in rates(form["rates"]):
            method.step(gradient(0, method.y), rate)
        cases.append(dict(form, lr=rates(form["rates"]), y=method.y.tolist(), x=method.x.tolist(), z=method.z.tolist()))
    return cases


def dion_gradient(step, size):
    """The matrices have full rank, so that a QR decomposition has no arbitrary columns."""
    return np.array([math.sin((0.37 + 0.11 * step) * (j + 1) ** 2) for j in range(size)])


def dion_cases():
    shapes, cases = [(6, 4), (4, 6), (5, 5)], []
    size = sum(int(np.prod(shape)) for shape in shapes)
    for ranks, workers in (([4, 4, 5], 1), ([2, 2, 2], 1), ([2, 2, 2], 3)):
        starts = [np.array([[math.sin(1 + 2.3 * i + 1.1 * j + 0.7 * i * j) for j in range(rank)]
                            for i in range(min(shape))]) for shape, rank in zip(shapes, ranks)]
        dion = reference.Dion(shapes, starts, mu=0.9, decay=0.1)
        theta = np.array([math.cos(0.3 * j) for j in range(size)])
        for step in range(6):
            theta = dion.step(theta, [dion_gradient(step + 7 * worker, size) for worker in range(workers)], lr=0.05)
        momentum = np.mean([np.concatenate([m.ravel() for m in own]) for own in dion.m], axis=0)
        cases.append(dict(shapes=shapes, ranks=ranks, workers=workers, steps=6, rate=0.05, mu=0.9, decay=0.1,
                          starts=[start.ravel().tolist() for start in starts], result=theta.tolist(),
                          momentum=momentum.tolist()))
    return cases


def matrices():
    u = np.array([[1.0, 2.0], [3.0, 4.0]])
    w = np.array([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
    return [dict(matrix=m.tolist(), coefficients=name,
                 result=reference.newton_schulz(m, getattr(reference, name)).tolist())
            for m in (u, w, w.T) for name in ("JORDAN", "DION")]


def outer(optimizer, rounds=4, steps=3, rate=0.1):
    x = START.copy()
    for _ in range(rounds):
        x = optimizer.step(x, sum(local_ends(x, steps, rate)) / WORKERS)
    return x.tolist()


def sparse_loco(**options):
    x, residuals, rounds = START.copy(), [np.zeros(SIZE) for _ in range(WORKERS)], []
    for _ in range(4):
        x, residuals, _ = reference.sparseloco_round(x, local_ends(x, 3, 0.1), residuals, SHAPES, tile=4, k=4, **options)
        rounds.append(x.tolist())
    return rounds


def muloco():
    x, rounds = START.copy(), []
    optimizer = reference.MuLoCoCompressed(0.8, 0.6, SHAPES, reference.quantise, decay=0.9, requantise=False)
    for _ in range(4):
        x = optimizer.step(x, local_ends(x, 3, 0.1))
        rounds.append(x.tolist())
    return rounds


def muon_rounds(step):
    """Rounds of three Muon steps with MuLoCo's settings. Each worker keeps its momentum. `step`: the outer step."""
    inner = [reference.Muon(beta=0.9, nesterov=False, decay=0.1, rule="spectral", coefficients=reference.DION,
                            adamw_factor=0.2, adamw_betas=(0.9, 0.99)) for _ in range(WORKERS)]
    x, rounds = START.copy(), []
    for _ in range(4):
        ends = []
        for worker in range(WORKERS):
            y = x.copy()
            for _ in range(3):
                y = inner[worker].step(y, gradient(worker, y), SHAPES, lr=0.05)
            ends.append(y)
        x = step(x, ends)
        rounds.append(x.tolist())
    return rounds


def muloco_with_muon():
    dense = reference.OuterMuLoCo(0.7, 0.6)
    bins = reference.MuLoCoCompressed(0.8, 0.6, SHAPES, reference.quantise, decay=0.9, requantise=False)
    return {"dense": muon_rounds(lambda x, ends: dense.step(x, sum(ends) / WORKERS)), "bins": muon_rounds(bins.step)}


def demo(transform):
    x, deltas = START.copy(), [np.zeros(SIZE) for _ in range(WORKERS)]
    for _ in range(5):
        gradients = [gradient(worker, x) for worker in range(WORKERS)]
        x, deltas = reference.demo_round(x, deltas, gradients, SHAPES, 0.05, beta=0.9, k=3, tile=4, transform=transform)
    return x.tolist()


def federated(method, grad=gradient, **options):
    return reference.federated(START.copy(), grad, WORKERS, 4, eta=0.1, method=method, **options)[0][-1].tolist()


def timed(events):
    return [dict(time=time, x=x.tolist()) for time, x in events]


def noloco():
    phis = [START.copy() for _ in range(2)]
    momenta = [np.zeros(SIZE) for _ in range(2)]
    for _ in range(4):
        thetas = []
        for worker in range(2):
            y = phis[worker].copy()
            for _ in range(3):
                y = y - 0.1 * gradient(worker, y)
            thetas.append(y)
        phis, momenta = reference.noloco_round(phis, momenta, thetas, [[0, 1]], mu=0.5, lr=0.7)
    return [phi.tolist() for phi in phis]


def differences(server, momentum=0.0):
    return timed(reference.asynchronous_local_sgd(server, gradient, durations(), 2,
                                                  lambda: reference.SGD(0.1, momentum), 12))


def look_ahead(**options):
    return differences(reference.LookAheadServer(START.copy(), lr=0.7, gamma=0.9, **options))


def heloco(by_staleness, **options):
    server = reference.LookAheadServer(START.copy(), shapes=SHAPES,
                                       weight=reference.heloco_weight(WORKERS, by_staleness), **options)
    return differences(server, momentum=0.5)


class OuterAdam:
    """CGAD (Shah and Sun 2026): FedOpt's Adam along sigma Delta, sigma = gate e^(-alpha tau) at staleness tau."""

    def __init__(self, alpha, cutoff):
        self.theta, self.version, self.alpha, self.cutoff = START.copy(), 0, alpha, cutoff
        self.adam = reference.FedOpt("adam", 0.05, tau=1e-2)

    def hand_out(self):
        return self.theta

    def receive(self, delta, staleness):
        gate = (1 + math.cos(math.pi * staleness / self.cutoff)) / 2 if staleness < self.cutoff else 0
        delta = gate * math.exp(-self.alpha * staleness) * delta
        self.theta = self.adam.step(self.theta, self.theta - delta)
        self.version += 1


def corrections():
    m = np.array([1.0, 0.0])
    return [dict(delta=delta, paper=paper, result=reference.heloco_correct(np.array(delta), m, paper=paper).tolist())
            for delta in ([1.0, 1.0], [-1.0, 0.0], [-1.0, 1.0], [0.1, 1.0], [0.0, 1.0]) for paper in (False, True)]


def trial_times():
    """The k-th trial of a worker takes the worker's time plus 0, 1/4, 1/2 or 3/4 s."""
    def of(worker):
        k = 0
        while True:
            yield TIMES[worker] + (3 * k + worker) % 4 / 4
            k += 1
    return [of(worker) for worker in range(WORKERS)]


def overlapped(method, phases_per_step, steps, communication, optimizer):
    """ACCO or DPU: for each step the model, the end of its (last) all-reduce, and the number of summed gradients."""
    counts, table, models = method(START.copy(), gradient, optimizer, durations(), communication, steps)[:3]
    return [dict(time=table[phases_per_step * step]["end"], x=models[step].tolist(),
                 kept=sum(sum(row) for row in counts[phases_per_step * (step - 1):phases_per_step * step]))
            for step in range(1, steps + 1)]


def ef21(rounds=12, momentum=None, kept=5):
    x, estimates = START.copy(), [np.zeros(SIZE) for _ in range(WORKERS)]
    velocities = None if momentum is None else [None] * WORKERS
    models = []
    for _ in range(rounds):
        gradients = [gradient(worker, x) for worker in range(WORKERS)]
        x, estimates, velocities = reference.ef21_round(x, estimates, gradients, 0.1, lambda v: reference.top_k(v, kept),
                                                        velocities, 1 if momentum is None else 1 - momentum)
        models.append(x.tolist())
    return models


def post_local(optimizer, **options):
    """The mean of all workers' models after each of 14 steps."""
    history = reference.post_local_sgd(START.copy(), curved_gradient, WORKERS,
                                       [optimizer() for _ in range(WORKERS)], 14, **options)
    return [(sum(models) / WORKERS).tolist() for models in history]


def post_local_cases():
    def sgd():
        return reference.SGD(0.1, momentum=0.9)

    def adamw():
        return reference.AdamW(0.05, betas=(0.9, 0.999), eps=1e-8)

    return {"groups": post_local(sgd, start=3, warmup=3, period=4, subgroup=2),
            "adamw": post_local(adamw, start=3, warmup=3, period=4, subgroup=2),
            "alone": post_local(sgd, start=2, warmup=5, period=3, subgroup=2, after="none"),
            "levels": post_local(sgd, start=1, warmup=3, period={2: 2, 6: 3}, subgroup=1)}


def averager_indices():
    return {"periodic": [t for t in range(26) if reference.periodic_average(t, 10, 4)],
            "hierarchical": [[t, size] for t in range(26)
                             if (size := reference.hierarchical_average(t, 10, {4: 8, 16: 16}))]}


def results():
    rescaled = reference.rescaled_rates(0.05, TIMES)
    return {
        "problem": dict(shapes=SHAPES, workers=WORKERS, times_s=TIMES),
        "newton_schulz": matrices(),
        "muon": muon_cases(),
        "averaged_iterates": iterate_cases(),
        "dion": dion_cases(),
        "quantiser": dict(values=[1, 2, 3, 10], result=reference.quantise(np.array([1.0, 2, 3, 10])).tolist()),
        "outer": {"adagrad": outer(reference.FedOpt("adagrad", 0.05, tau=1e-2)),
                  "adam": outer(reference.FedOpt("adam", 0.05, tau=1e-2)),
                  "yogi": outer(reference.FedOpt("yogi", 0.05, tau=1e-2))},
        "sparse_loco": {"senders": sparse_loco(beta=0.95, alpha=0.4),
                        "all": sparse_loco(beta=0.95, alpha=0.4, divisor="all", clip=False),
                        "floats": sparse_loco(beta=0.9, alpha=0.7, quantiser=False)},
        "muloco": muloco(),
        "muloco_with_muon": muloco_with_muon(),
        "demo": {"transform": demo(True), "plain": demo(False)},
        "federated": {"fedprox": federated("fedprox", steps=[1, 3, 4], mu=0.3),
                      "fedprox_samples": federated("fedprox", steps=[1, 3, 4], mu=0.3, weights=SAMPLES),
                      "scaffold_2": federated("scaffold", curved_gradient, steps=3, option=2, eta_g=0.8),
                      "scaffold_1": federated("scaffold", curved_gradient, steps=3, option=1),
                      "fednova": federated("fednova", steps=[1, 3, 4]),
                      "fednova_samples": federated("fednova", steps=[1, 3, 4], weights=SAMPLES),
                      "fednova_samples_both": federated("fednova", steps=[1, 3, 4], mu=0.3, momentum=0.9,
                                                        weights=SAMPLES),
                      "fednova_momentum": federated("fednova", steps=[1, 3, 4], momentum=0.9),
                      "fednova_proximal": federated("fednova", steps=[1, 3, 4], mu=0.3),
                      "fednova_both": federated("fednova", steps=[1, 3, 4], mu=0.3, momentum=0.9)},
        "ringleader": timed(reference.ringleader(START.copy(), gradient, durations(), 0.05, 12)),
        "malenia": timed(reference.malenia(START.copy(), gradient, durations(), 0.1, 5)),
        "rescaled": timed(reference.asynchronous_sgd(START.copy(), gradient, durations(), rescaled, 12)),
        "noloco": noloco(),
        "acco": {str(time): overlapped(reference.acco_timed, 2, 6, time, reference.SGD(0.05, 0.9))
                 for time in (0.4, 6.9)},
        "acco_adamw": {str(time): overlapped(reference.acco_timed, 2, 6, time, reference.AdamW(0.05, decay=0.01))
                       for time in (0.4, 6.9)},
        "delayed_update": {str(time): overlapped(reference.dpu_timed, 1, 9, time, reference.SGD(0.05, 0.9))
                           for time in (0.4, 6.9)},
        "delayed_update_as_published": {
            str(time): overlapped(functools.partial(reference.dpu_timed, published=True), 1, 9, time,
                                  reference.SGD(0.05, 0.9))
            for time in (0.4, 6.9)},
        "look_ahead": look_ahead(ahead=False),
        "look_ahead_hand_out": look_ahead(),
        "heloco": {"code": heloco(False, c_ok=0.9), "paper": heloco(False, c_ok=0.9, paper=True),
                   "by_staleness": heloco(True)},
        "heloco_corrections": corrections(),
        "cgad": differences(OuterAdam(0.3, 3.0)),
        "ormo": {"0.9": timed(reference.ormo(START.copy(), gradient, durations(), 0.05, 0.9, 15)),
                 "0.5": timed(reference.ormo(START.copy(), gradient, durations(), 0.05, 0.5, 15))},
        "mindflayer": timed(reference.mindflayer(START.copy(), gradient, trial_times(), 0.1, 5, [3, 2, 1],
                                                 [1.4, math.inf, 3.3], [0.5, 1, 0.75])),
        "clipping_rennala": timed(reference.clipping_rennala(START.copy(), gradient, durations(), 0.1, 6, [1.7] * 3, 5,
                                                             p=1.25)),
        "ef21": {"last": ef21(), "average": ef21(momentum=0.7)},
        "post_local": post_local_cases(),
        "averagers": averager_indices(),
    }


def are_equal(found, expected):
    if isinstance(found, dict):
        return found.keys() == expected.keys() and all(are_equal(found[key], expected[key]) for key in found)
    if isinstance(found, list):
        return len(found) == len(expected) and all(map(are_equal, found, expected))
    if isinstance(found, float):
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
    return found == expected


def main():
    file = pathlib.Path(__file__).with_name("methods_2026.json")
    text = json.dumps(results(), indent=None, separators=(",", ":")) + "\n"
    if "--check" not in sys.argv:
        file.write_text(text)
    elif not are_equal(json.loads(file.read_text()), json.loads(text)):
        sys.exit(f"{file} is not what {pathlib.Path(__file__).name} writes")


main()
