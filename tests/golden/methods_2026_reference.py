"""Reference implementations of the methods of 2025 and 2026 and of the federated classics, independent of the program.

They follow a summary of the papers that the docstrings name, and of the papers' published code. Choices that the
summary leaves open are parameters, or stand in the docstring.

Plain NumPy, double precision. Vectors are flat arrays; `shapes` cuts them in order into tensors, row major.
`grad(worker, x)` returns a gradient. The caller may let it draw random numbers: it is called for each gradient of a
worker that is delivered, in the order of arrival.
"""
import copy
import heapq
import math

import numpy as np


# ------------------------------------------------------------------ tensors
def pieces(shapes):
    """Slices of the flat vector, one per tensor."""
    out, start = [], 0
    for shape in shapes:
        size = int(np.prod(shape))
        out.append(slice(start, start + size))
        start += size
    return out


def copies(vectors):
    return [np.array(v, dtype=float) for v in vectors]


# ------------------------------------------------------------------ Muon
JORDAN = [(3.4445, -4.7750, 2.0315)] * 5
DION = [(4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)]


def newton_schulz(u, coefficients=JORDAN):
    """Muon's NS5(u): transpose if tall, normalise by the Frobenius norm + 1e-7, then a step per row of coefficients."""
    x = np.array(u, dtype=float)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = x / (np.linalg.norm(x) + 1e-7)
    for a, b, c in coefficients:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if tall else x


def muon_scale(rows, columns, rule):
    """The scale of a matrix's step in the code of Muon ("jordan"), of MuLoCo ("spectral") and of Moonlight."""
    if rule == "jordan":
        return math.sqrt(max(1.0, rows / columns))
    if rule == "spectral":
        return math.sqrt(rows / columns)
    if rule == "moonlight":
        return 0.2 * math.sqrt(max(rows, columns))
    raise ValueError(rule)


class Muon:
    """Muon (Jordan et al. 2024). For 1-D tensors and those in `adamw`: AdamW with bias correction and decoupled decay.

    AdamW's rate is `adamw_lr` if given, else lr * adamw_factor. epsilon_on "corrected": mhat / (sqrt(vhat) + eps);
    "uncorrected" (Moonlight): lr * sqrt(1 - b2^k) / (1 - b1^k) * m / (sqrt(v) + eps).
    """

    def __init__(self, beta=0.95, nesterov=True, decay=0.0, rule="jordan", coefficients=JORDAN, adamw=(),
                 adamw_lr=None, adamw_factor=1.0, adamw_betas=(0.9, 0.95), adamw_eps=1e-10, adamw_decay=0.0,
                 epsilon_on="corrected"):
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})
        self.m = self.v = None
        self.count = 0

    def step(self, theta, gradient, shapes, lr=0.02):
        theta = np.array(theta, dtype=float)
        if self.m is None:
            self.m, self.v = np.zeros_like(theta), np.zeros_like(theta)
        self.count += 1
        for index, (shape, cut) in enumerate(zip(shapes, pieces(shapes))):
            g = gradient[cut]
            if len(shape) == 1 or index in self.adamw:
                rate = self.adamw_lr if self.adamw_lr is not None else lr * self.adamw_factor
                b1, b2 = self.adamw_betas
                self.m[cut] = b1 * self.m[cut] + (1 - b1) * g
                self.v[cut] = b2 * self.v[cut] + (1 - b2) * g * g
                c1, c2 = 1 - b1 ** self.count, 1 - b2 ** self.count
                if self.epsilon_on == "corrected":
                    move = self.m[cut] / c1 / (np.sqrt(self.v[cut] / c2) + self.adamw_eps)
                else:
                    move = math.sqrt(c2) / c1 * self.m[cut] / (np.sqrt(self.v[cut]) + self.adamw_eps)
                theta[cut] = theta[cut] * (1 - rate * self.adamw_decay) - rate * move
            else:
                m = self.beta * self.m[cut] + (1 - self.beta) * g
                self.m[cut] = m
                u = (1 - self.beta) * g + self.beta * m if self.nesterov else m
                o = newton_schulz(u.reshape(shape), self.coefficients).ravel()
                theta[cut] = theta[cut] * (1 - lr * self.decay) - lr * muon_scale(*shape, self.rule) * o
        return theta


class SGD:
    """SGD with buf <- momentum buf + g, optionally Nesterov; decay is added to the gradient (L2)."""

    def __init__(self, lr, momentum=0.0, nesterov=False, decay=0.0):
        self.lr, self.momentum, self.nesterov, self.decay, self.buf = lr, momentum, nesterov, decay, 0.0

    def step(self, theta, gradient, lr=None):
        g = gradient + self.decay * theta
        self.buf = self.momentum * self.buf + g
        move = g + self.momentum * self.buf if self.nesterov else self.buf
        return theta - (self.lr if lr is None else lr) * move


class AdamW:
    """AdamW with both bias corrections and decoupled decay."""

    def __init__(self, lr, betas=(0.9, 0.999), eps=1e-8, decay=0.0):
        self.lr, self.betas, self.eps, self.decay = lr, betas, eps, decay
        self.m = self.v = 0.0
        self.count = 0

    def step(self, theta, gradient, lr=None):
        rate = self.lr if lr is None else lr
        b1, b2 = self.betas
        self.count += 1
        self.m = b1 * self.m + (1 - b1) * gradient
        self.v = b2 * self.v + (1 - b2) * gradient * gradient
        mhat, vhat = self.m / (1 - b1 ** self.count), self.v / (1 - b2 ** self.count)
        return theta * (1 - rate * self.decay) - rate * mhat / (np.sqrt(vhat) + self.eps)


# ------------------------------------------------------------------ outer optimizers
class OuterNesterov:
    """DiLoCo's outer step, PyTorch's form of Nesterov. Delta = x - a; a is the mean of the workers' end models."""

    def __init__(self, lr, mu):
        self.lr, self.mu, self.buf = lr, mu, 0.0

    def step(self, x, a):
        delta = x - a
        self.buf = self.mu * self.buf + delta
        return x - self.lr * (delta + self.mu * self.buf)


class OuterMuLoCo:
    """MuLoCo (Therien et al. 2025), uncompressed: u <- mu u + lr Delta; Theta <- Theta - mu u - lr Delta.

    lr may change per step."""

    def __init__(self, lr, mu):
        self.lr, self.mu, self.u = lr, mu, 0.0

    def step(self, x, a, lr=None):
        lr = self.lr if lr is None else lr
        delta = x - a
        self.u = self.mu * self.u + lr * delta
        return x - self.mu * self.u - lr * delta


class OuterHeavyBall:
    """Heavy ball, as in NoLoCo's code: buf <- mu buf + Delta; Theta <- Theta - lr buf."""

    def __init__(self, lr, mu):
        self.lr, self.mu, self.buf = lr, mu, 0.0

    def step(self, x, a):
        self.buf = self.mu * self.buf + (x - a)
        return x - self.lr * self.buf


class FedOpt:
    """FedOpt (Reddi et al. 2021); kind "adagrad", "adam" or "yogi". v starts at v0 (default tau^2)."""

    def __init__(self, kind, lr, b1=None, b2=0.99, tau=1e-3, v0=None):
        self.kind, self.lr, self.b2, self.tau = kind, lr, b2, tau
        self.b1 = (0.0 if kind == "adagrad" else 0.9) if b1 is None else b1
        self.m = 0.0
        self.v = tau * tau if v0 is None else v0

    def step(self, x, a):
        d = a - x
        self.m = self.b1 * self.m + (1 - self.b1) * d
        if self.kind == "adagrad":
            self.v = self.v + d * d
        elif self.kind == "adam":
            self.v = self.b2 * self.v + (1 - self.b2) * d * d
        elif self.kind == "yogi":
            self.v = self.v - (1 - self.b2) * d * d * np.sign(self.v - d * d)
        else:
            raise ValueError(self.kind)
        return x + self.lr * self.m / (np.sqrt(self.v) + self.tau)


class MuLoCoCompressed:
    """MuLoCo (Therien et al. 2025) with compression. compressor(tensor) -> decoded tensor, applied per tensor.

    error_feedback: e <- decay e + lr Delta_i, send Q(e), e <- e - alpha dec(q): lr acts twice. Without: Q(Delta_i).
    requantise: compress the mean again. `skip`: tensors sent uncompressed, without a residual; lr acts once on them.
    """

    def __init__(self, lr, mu, shapes, compressor, error_feedback=True, decay=0.95, alpha=1.0, requantise=True,
                 nesterov=True, skip=()):
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})
        self.e, self.buf = None, 0.0

    def step(self, x, ends):
        if self.e is None:
            self.e = [np.zeros_like(x) for _ in ends]
        mean = np.zeros_like(x)
        self.sent = [np.zeros_like(x) for _ in ends]
        for index, (shape, cut) in enumerate(zip(self.shapes, pieces(self.shapes))):
            for i, end in enumerate(ends):
                delta = x[cut] - end[cut]
                if index in self.skip:
                    self.sent[i][cut] = delta
                elif self.error_feedback:
                    self.e[i][cut] = self.decay * self.e[i][cut] + self.lr * delta
                    self.sent[i][cut] = self.compressor(self.e[i][cut].reshape(shape)).ravel()
                    self.e[i][cut] = self.e[i][cut] - self.alpha * self.sent[i][cut]
                else:
                    self.sent[i][cut] = self.compressor(delta.reshape(shape)).ravel()
            mean[cut] = sum(s[cut] for s in self.sent) / len(ends)
            if self.requantise and index not in self.skip:
                mean[cut] = self.compressor(mean[cut].reshape(shape)).ravel()
        self.buf = self.mu * self.buf + mean
        return x - self.lr * (mean + self.mu * self.buf if self.nesterov else self.buf)


# ------------------------------------------------------------------ compressors
def quantise(x, bins=4, spread=6.0):
    """MuLoCo's statistical quantiser over all of x. A bin is decoded to the mean of its values.

    Constant input or a single value (standard deviation 0 or undefined) is returned unchanged."""
    x = np.asarray(x, dtype=float)
    flat = x.ravel()
    if flat.size < 2:
        return x.copy()
    s, sd = flat.mean(), flat.std(ddof=1)
    if sd == 0:
        return x.copy()
    width = spread * sd / bins
    index = np.clip(np.round((flat - s) / width + bins / 2), 0, bins - 1).astype(int)
    out = np.empty_like(flat)
    for b in np.unique(index):
        out[index == b] = (flat - s)[index == b].mean() + s
    return out.reshape(x.shape)


def top_k_mask(rows, k):
    """Largest k by magnitude in each row; equal magnitudes: lower index first."""
    order = np.argsort(-np.abs(rows), axis=1, kind="stable")[:, :k]
    mask = np.zeros(rows.shape, dtype=bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask


def top_k(x, k):
    """Plain top-k of a whole array (for EF21, MuLoCo)."""
    flat = np.asarray(x, dtype=float).reshape(1, -1)
    return np.where(top_k_mask(flat, k), flat, 0.0).reshape(np.shape(x))


def top_k_share(x, share=0.1):
    """MuLoCo's top-k: k = max(1, floor(share n)). The message has 12 k bytes (fp32 values, int64 indices)."""
    return top_k(x, max(1, int(share * np.size(x))))


def tile_side(n, limit=64):
    """Largest divisor of n that is <= limit."""
    return max(d for d in range(1, min(n, limit) + 1) if n % d == 0)


def tile_shape(shape, limit=64):
    return tuple(tile_side(n, limit) for n in shape)


def to_tiles(tensor, tile):
    """Rows of the result are the tiles, each flattened row major."""
    if tensor.ndim == 1:
        return tensor.reshape(-1, tile[0])
    r, c = tensor.shape
    a, b = tile
    return tensor.reshape(r // a, a, c // b, b).transpose(0, 2, 1, 3).reshape(-1, a * b)


def from_tiles(rows, shape, tile):
    if len(shape) == 1:
        return rows.reshape(shape)
    (r, c), (a, b) = shape, tile
    return rows.reshape(r // a, c // b, a, b).transpose(0, 2, 1, 3).reshape(r, c)


def sparseloco_k(k, size, even_after_clamp=False):
    """SparseLoCo's number of values per tile: k made even, at least 2, and at most the tile's size."""
    if even_after_clamp:
        k = min(k, size)
    return min(size, max(2, k - k % 2))


def sparseloco_compress(e, shapes, k=64, tile=64, quantiser=True, even_after_clamp=False):
    """SparseLoCo's compressor C(e). Returns (decoded message, mask of the coordinates that were sent)."""
    message, sent = np.zeros_like(e), np.zeros(e.shape, dtype=bool)
    for shape, cut in zip(shapes, pieces(shapes)):
        t = tile_shape(shape, tile)
        rows = to_tiles(e[cut].reshape(shape), t)
        mask = top_k_mask(rows, sparseloco_k(k, rows.shape[1], even_after_clamp))
        kept = rows[mask]
        values = np.zeros_like(rows)
        values[mask] = quantise(kept) if quantiser else kept
        message[cut] = from_tiles(values, shape, t).ravel()
        sent[cut] = from_tiles(mask, shape, t).ravel()
    return message, sent


def sparseloco_round(theta, ends, residuals, shapes, beta=0.95, alpha=0.4, k=64, tile=64, quantiser=True,
                     divisor="senders", clip=True, median="middle", even_after_clamp=False):
    """SparseLoCo (Sarfi et al. 2025), one round. Returns (theta, residuals, messages).

    clip: per tensor, scales each message by min(1, median norm / own norm), in the aggregate only.
    median of an even number of norms: "middle": mean of the two middle ones; "lower": the lower of them."""
    new, messages, masks = [], [], []
    for end, e in zip(ends, residuals):
        e = beta * e + (theta - end)
        message, mask = sparseloco_compress(e, shapes, k, tile, quantiser, even_after_clamp)
        new.append(e - message)
        messages.append(message)
        masks.append(mask)
    step = np.zeros_like(theta)
    for cut in pieces(shapes):
        norms = [np.linalg.norm(m[cut]) for m in messages]
        middle = np.median(norms) if median == "middle" else sorted(norms)[(len(norms) - 1) // 2]
        total, senders = 0.0, 0
        for m, mask, norm in zip(messages, masks, norms):
            factor = min(1.0, middle / norm) if clip and norm > 0 else 1.0
            total = total + factor * m[cut]
            senders = senders + mask[cut]
        aggregate = total / (np.maximum(senders, 1) if divisor == "senders" else len(ends))
        if np.all(np.isfinite(aggregate)):                  # as in the published code
            step[cut] = aggregate
    return theta - alpha * step, new, messages


def sparseloco_bytes(shapes, k=64, tile=64, value_bits=2, index_bits=12, floats_per_tensor=0):
    """The bytes of SparseLoCo's message. The published code has value_bits = 8."""
    total = 0
    for shape in shapes:
        size = int(np.prod(tile_shape(shape, tile)))
        tiles = int(np.prod(shape)) // size
        total += tiles * sparseloco_k(k, size) * (index_bits + value_bits) / 8 + 4 * floats_per_tensor
    return total


def dct_matrix(n):
    """Orthonormal DCT-II."""
    j, i = np.arange(n)[:, None], np.arange(n)[None, :]
    c = math.sqrt(2 / n) * np.cos(math.pi * (2 * i + 1) * j / (2 * n))
    c[0] /= math.sqrt(2)
    return c


def tile_dct(rows, tile, inverse=False):
    c = [dct_matrix(n).T if inverse else dct_matrix(n) for n in tile]
    if len(tile) == 1:
        return rows @ c[0].T
    return np.stack([(c[0] @ r.reshape(tile) @ c[1].T).ravel() for r in rows])


def demo_round(x, deltas, gradients, shapes, eta, beta=0.999, k=32, tile=64, decay=0.0, transform=True):
    """DeMo (Peng et al. 2024), one step. deltas: momentum residual per worker. Returns (x, deltas)."""
    x = x * (1 - eta * decay)
    new = [beta * d + eta * g for d, g in zip(deltas, gradients)]
    for shape, cut in zip(shapes, pieces(shapes)):
        t = tile_shape(shape, tile)
        total, senders = 0.0, 0
        for d in new:
            rows = to_tiles(d[cut].reshape(shape), t)
            coefficients = tile_dct(rows, t) if transform else rows
            mask = top_k_mask(coefficients, min(k, rows.shape[1]))
            own = np.where(mask, coefficients, 0.0)
            back = tile_dct(own, t, inverse=True) if transform else own
            d[cut] = d[cut] - from_tiles(back, shape, t).ravel()
            total, senders = total + own, senders + mask
        mean = total / np.maximum(senders, 1)
        back = tile_dct(mean, t, inverse=True) if transform else mean
        x[cut] = x[cut] - eta * np.sign(from_tiles(back, shape, t).ravel())
    return x, new


def ef21_round(x, estimates, gradients, gamma, compressor, velocities=None, a=1.0):
    """EF21 (Richtarik et al. 2021), one round: g_i <- g_i + C(grad_i - g_i); x <- x - gamma mean g_i.

    Start with estimates of 0 (then the first g_i is C(grad)), or with the gradients. velocities: for EF21-SGDM,
    v_i <- (1-a) v_i + a grad. If an entry is None, v_i starts at the first gradient. Returns (x, estimates,
    velocities)."""
    if velocities is not None:
        velocities = [g if v is None else (1 - a) * v + a * g for v, g in zip(velocities, gradients)]
    targets = gradients if velocities is None else velocities
    estimates = [e + compressor(t - e) for e, t in zip(estimates, targets)]
    return x - gamma * sum(estimates) / len(estimates), estimates, velocities


# ------------------------------------------------------------------ ACCO, DPU
def micro_sum(grad, x, counts):
    """The sum of the gradients of all workers' micro-batches at x, and the number of micro-batches."""
    total = 0.0
    for i, n in enumerate(counts):
        for _ in range(n):
            total = total + grad(i, x)
    return total, sum(counts)


def acco(theta, grad, optimizer, counts, schedule=None):
    """ACCO (Nabli et al. 2025). Sums of gradients: A_t at theta_t; B_t at the estimate theta~_t, and B_0 at theta_0.

    counts: each worker's number of micro-batches in B_0, A_0, B_1, A_1, ...; 2T rows give T steps.
    schedule(micro-gradients in kept steps so far) -> rate, used in both phases of a step.
    Returns (thetas, estimates): theta_0.. theta_T and theta~_1 .. theta~_T."""
    thetas, estimates, used = [theta], [], 0
    b, nb = micro_sum(grad, theta, counts[0])
    for t in range(len(counts) // 2):
        rate = None if schedule is None else schedule(used)
        a, na = micro_sum(grad, theta, counts[2 * t + 1])                    # phase 1
        estimate = copy.deepcopy(optimizer).step(theta, b / nb, rate)        # only the model is kept
        following = (0.0, 0)
        if 2 * t + 2 < len(counts):
            following = micro_sum(grad, estimate, counts[2 * t + 2])         # phase 2
        theta = optimizer.step(theta, (b + a) / (nb + na), rate)
        used += nb + na
        b, nb = following
        thetas.append(theta)
        estimates.append(estimate)
    return thetas, estimates


def dpu(theta, grad, optimizer, counts, schedule=None, published=False):
    """Delayed parameter update, ACCO's baseline: theta_{t+1} = Opt(theta_t, mean g(theta_{t-1})).

    The first two steps both use g(theta_0). counts[0]: micro-batches at theta_0; counts[p]: at the model of step p - 1,
    while the gradients of counts[p-1] are reduced. published: like ACCO's code, which uses every second gradient twice.
    Returns theta_0 .. theta_T."""
    thetas, used = [theta], 0
    total, n = micro_sum(grad, theta, counts[0])
    for p in range(1, len(counts) + 1):
        handed, handed_n = total, n
        rate = None if schedule is None else schedule(used)
        if not published or p % 2 == 0:
            total, n = 0.0, 0                                                # accumulator cleared after hand-over
        if p < len(counts):
            more, m = micro_sum(grad, theta, counts[p])
            total, n = total + more, n + m
        theta = optimizer.step(theta, handed / handed_n, rate)
        used += handed_n
        thetas.append(theta)
    return thetas


def phases_by_time(durations, communication, phases, barrier=False):
    """Counts for acco and dpu from times. durations: per worker, an iterator of micro-batch times.

    Row 0 is the start: one micro-batch each, no collective. A phase's collective starts when the slowest worker has
    finished its last micro-batch of the previous phase, and takes the time `communication`. A worker adds micro-batches
    (at least one) until one ends at or after the collective's end. The worker begins when its last micro-batch ended,
    or (barrier) when the collective starts. Returns (counts, table); table rows: start and end of the collective, and
    the end of each worker's last micro-batch."""
    ready = [next(d) for d in durations]
    counts = [[1] * len(durations)]
    table = [{"start": 0.0, "end": 0.0, "boundaries": list(ready)}]
    for _ in range(phases):
        start = max(ready)
        end = start + communication
        row = []
        for i, d in enumerate(durations):
            now, n = (start if barrier else ready[i]), 0
            while n == 0 or now < end:
                now, n = now + next(d), n + 1
            ready[i] = now
            row.append(n)
        counts.append(row)
        table.append({"start": start, "end": end, "boundaries": list(ready)})
    return counts, table


def acco_timed(theta, grad, optimizer, durations, communication, steps, barrier=False, schedule=None):
    """ACCO with counts from times. theta_{t+1} exists from the end of the collective in row 2t + 2 of the table."""
    counts, table = phases_by_time(durations, communication, 2 * steps, barrier)
    thetas, estimates = acco(theta, grad, optimizer, counts, schedule)
    return counts, table, thetas, estimates


def dpu_timed(theta, grad, optimizer, durations, communication, steps, barrier=False, schedule=None, published=False):
    """DPU with counts from times. theta_p exists from the end of the collective in row p of the table."""
    counts, table = phases_by_time(durations, communication, steps, barrier)
    return counts, table, dpu(theta, grad, optimizer, counts[:steps], schedule, published)


# ------------------------------------------------------------------ event simulations, free network
class Workers:
    """Workers that compute gradients at the model they were given; arrivals in order of (time, worker index)."""

    def __init__(self, grad, durations, x):
        self.grad, self.durations, self.queue, self.models = grad, durations, [], {}
        for i in range(len(durations)):
            self.start(i, 0.0, x)

    def start(self, i, now, x, tag=0):
        self.models[i] = (x, tag)
        heapq.heappush(self.queue, (now + next(self.durations[i]), i))

    def arrival(self):
        now, i = heapq.heappop(self.queue)
        x, tag = self.models[i]
        return now, i, self.grad(i, x), tag

    def restart_all(self, now, x):
        self.queue = []
        for i in range(len(self.durations)):
            self.start(i, now, x)


def ringleader(x, grad, durations, gamma, updates, delays=None):
    """Ringleader ASGD (Maranjyan and Richtarik 2025). Returns [(time, x)] after each update.

    Adds to the list `delays` the delay of each gradient when it enters a sum."""
    n = len(durations)
    workers = Workers(grad, durations, x)
    sums, counts = [0.0] * n, [0] * n
    out = []

    def add(table, numbers, i, g, born):
        table[i] = table[i] + g
        numbers[i] += 1
        if delays is not None:
            delays.append(len(out) - born)

    while len(out) < updates:
        while True:                                                     # phase 1
            now, i, g, born = workers.arrival()
            add(sums, counts, i, g, born)
            if all(counts):
                break
            workers.start(i, now, x, len(out))
        next_sums, next_counts, served = [0.0] * n, [0] * n, set()      # phase 2, first with the last arrival
        while True:
            x = x - gamma * sum(s / c for s, c in zip(sums, counts)) / n
            out.append((now, x))
            served.add(i)
            workers.start(i, now, x, len(out))
            if len(served) == n:
                break
            while True:
                now, i, g, born = workers.arrival()
                if i not in served:
                    add(sums, counts, i, g, born)
                    break
                add(next_sums, next_counts, i, g, born)
                workers.start(i, now, x, len(out))
        sums, counts = next_sums, next_counts
    return out[:updates]


def malenia(x, grad, durations, gamma, updates, s=None):
    """Malenia SGD (Tyurin and Richtarik 2023).

    A round ends once each worker has a gradient and, unless s is None, the counts' harmonic mean is at least s / N."""
    n = len(durations)
    workers = Workers(grad, durations, x)
    out = []
    while len(out) < updates:
        sums, counts = [0.0] * n, [0] * n
        while True:
            now, i, g, _ = workers.arrival()
            sums[i], counts[i] = sums[i] + g, counts[i] + 1
            if all(counts) and (s is None or n / sum(1 / c for c in counts) >= s / n):
                break
            workers.start(i, now, x)
        x = x - gamma * sum(a / c for a, c in zip(sums, counts)) / n
        out.append((now, x))
        workers.restart_all(now, x)
    return out


def rescaled_rates(gamma, taus):
    """Rescaled ASGD (Mahran et al. 2026): gamma_i = gamma tau_i (1/N) sum_j 1 / tau_j."""
    mean = sum(1 / t for t in taus) / len(taus)
    return [gamma * t * mean for t in taus]


def asynchronous_sgd(x, grad, durations, rates, updates):
    """Asynchronous SGD with a rate per worker, for example rescaled_rates. Each arrival is a step."""
    workers = Workers(grad, durations, x)
    out = []
    for _ in range(updates):
        now, i, g, _ = workers.arrival()
        x = x - rates[i] * g
        out.append((now, x))
        workers.start(i, now, x)
    return out


def mindflayer(x, grad, durations, gamma, rounds, trials, limits, probabilities):
    """MindFlayer SGD (Maranjyan et al. 2025): worker i makes trials[i] trials at x, each cut at limits[i].

    The divisor is the expected number of finished trials, sum_i p_i B_i. The round ends with the last worker's last
    trial."""
    now, out = 0.0, []
    divisor = sum(p * b for p, b in zip(probabilities, trials))
    for _ in range(rounds):
        total, ends = np.zeros_like(x), []
        for i, d in enumerate(durations):
            mine = now
            for _ in range(trials[i]):
                tau = next(d)
                mine = mine + min(tau, limits[i])
                if tau <= limits[i]:
                    total = total + grad(i, x)
            ends.append(mine)
        now = max(ends)
        x = x - gamma * total / divisor
        out.append((now, x))
    return out


def clipping_rennala(x, grad, durations, gamma, rounds, limits, batch, p=1.0):
    """Class ClippingRennala of MindFlayer's authors: a round is `batch` trials, finished or cut, of any workers.

    The step is gamma p sum / batch. Infinite limits give Rennala with S = batch. At the end of a round all work is
    cancelled, and all workers restart."""
    now, out = 0.0, []
    for _ in range(rounds):
        queue, taus, total = [], {}, np.zeros_like(x)

        def start(i, at):
            taus[i] = next(durations[i])
            heapq.heappush(queue, (at + min(taus[i], limits[i]), i))

        for i in range(len(durations)):
            start(i, now)
        for trial in range(batch):
            now, i = heapq.heappop(queue)
            if taus[i] <= limits[i]:
                total = total + grad(i, x)
            if trial < batch - 1:
                start(i, now)
        x = x - gamma * p * total / batch
        out.append((now, x))
    return out


def ormo(x, grad, durations, eta, beta, updates, rounding="floor"):
    """OrMo (Shi et al. 2024). Update number t = 0, 1, ... is in bucket floor(t/N) (or ceil). A gradient's own bucket is
    that of the number of updates done when its worker started. A bucket closes just before the next bucket's first
    gradient enters. So the model handed out at a bucket's end lacks the closing's step. N = 1 is momentum SGD."""
    n = len(durations)
    bucket = (lambda t: t // n) if rounding == "floor" else (lambda t: -(-t // n))
    workers = Workers(grad, durations, x)
    u, out = np.zeros_like(x), []
    for t in range(updates):
        now, i, g, born = workers.arrival()
        if t > 0 and bucket(t) > bucket(t - 1):
            x, u = x - beta * u, beta * u
        j = bucket(t) - bucket(born)
        u = u + beta ** j * eta * g
        x = x - eta * g * sum(beta ** p for p in range(j + 1))
        out.append((now, x))
        workers.start(i, now, x, t + 1)
    return out


# ------------------------------------------------------------------ federated classics
def federated(theta, grad, workers, rounds, steps, eta, method="fedavg", weights=None, mu=0.0, momentum=0.0,
              option=2, eta_g=1.0, global_momentum=0.0, participants=None, state=None):
    """FedAvg (McMahan et al. 2017), FedProx (Li et al. 2020), SCAFFOLD (Karimireddy et al. 2020), FedNova (Wang et al.
    2020); `method` is "fedavg", "fedprox", "scaffold" or "fednova". Returns (thetas after each round, state).

    steps: K or a list K_i. weights: n_i; scaffold does not use them. momentum: of a worker, zeroed each round; the
    proximal term mu (w - Theta) is added after it. participants(round) -> workers present."""
    ks = [steps] * workers if isinstance(steps, int) else list(steps)
    weights = [1.0] * workers if weights is None else weights
    if state is None:
        state = {"c": np.zeros_like(theta), "ci": [np.zeros_like(theta) for _ in range(workers)], "buf": 0.0}
    thetas = []
    for r in range(rounds):
        present = list(range(workers)) if participants is None else participants(r)
        share = {i: weights[i] / sum(weights[j] for j in present) for i in present}
        ends, a = {}, {}
        for i in present:
            w, buf, counter, a[i] = theta.copy(), 0.0, 0.0, 0.0
            for _ in range(ks[i]):
                g = grad(i, w)
                if method == "scaffold":
                    g = g - state["ci"][i] + state["c"]
                buf = momentum * buf + g
                d = buf
                if method in ("fedprox", "fednova"):
                    d = buf + mu * (w - theta)
                w = w - eta * d
                if momentum != 0:                                       # FedNova's steps, chained as in its code
                    counter = momentum * counter + 1
                    a[i] += counter
                if mu != 0:
                    a[i] = (1 - eta * mu) * a[i] + 1
                if momentum == 0 and mu == 0:
                    a[i] += 1
            ends[i] = w
        if method == "scaffold":
            change = 0.0
            for i in present:
                if option == 1:
                    new = grad(i, theta)
                else:
                    new = state["ci"][i] - state["c"] + (theta - ends[i]) / (ks[i] * eta)
                change = change + (new - state["ci"][i])
                state["ci"][i] = new
            theta = theta + eta_g * sum(ends[i] - theta for i in present) / len(present)
            state["c"] = state["c"] + change / workers
        elif method == "fednova":
            tau = sum(share[i] * (ks[i] if mu != 0 else a[i]) for i in present)
            move = tau * sum(share[i] * (theta - ends[i]) / a[i] for i in present)
            state["buf"] = global_momentum * state["buf"] + move / eta
            theta = theta - (eta * state["buf"] if global_momentum else move)
        else:
            theta = sum(share[i] * ends[i] for i in present)
        thetas.append(theta)
    return thetas, state


# ------------------------------------------------------------------ NoLoCo
def noloco_round(phis, momenta, thetas, groups, mu=0.5, lr=0.7):
    """NoLoCo (Kolehmainen et al. 2025), one exchange. groups: lists of workers (pairs); a worker in none is alone.

    Returns (phis, momenta); the new theta_i is phi_i."""
    phis, momenta = copies(phis), copies(momenta)
    rest = set(range(len(phis))) - {i for group in groups for i in group}
    for group in list(groups) + [[i] for i in sorted(rest)]:
        g = sum(thetas[i] - phis[i] for i in group) / len(group)
        p = sum(phis[i] for i in group) / len(group)
        for i in group:
            momenta[i] = mu * momenta[i] + lr * g + lr * (p - phis[i])
        for i in group:
            phis[i] = phis[i] + momenta[i]
    return phis, momenta


# ------------------------------------------------------------------ PyTorch's post-local SGD
def periodic_average(step, warmup, period):
    """PeriodicModelAverager: whether models are averaged after the optimizer step with index `step`."""
    return step >= warmup and (step - warmup) % period == 0


def hierarchical_average(step, warmup, period_to_group):
    """HierarchicalModelAverager: the size of the groups to average over; None: no average."""
    if step < warmup:
        return None
    due = [p for p in period_to_group if step % p == 0]
    return period_to_group[max(due)] if due else None


def gradient_scope(step, start, after="group"):
    """DDP's hook: gradients are averaged over "all" before `start`, then over "group" (or "none": not averaged)."""
    return "all" if step < start else after


def post_local_sgd(theta, grad, workers, optimizers, steps, start, warmup, period, subgroup=1, after="group"):
    """Post-local SGD. period: a number (Periodic) or {period: group size} (Hierarchical). Groups are consecutive ranks.

    optimizers: one object per worker, with its own state. Returns the list over steps of all workers' models."""
    def average(vectors, size):
        out = []
        for first in range(0, workers, size):
            block = vectors[first:first + size]
            out += [sum(block) / len(block)] * len(block)
        return out

    models, history = [theta] * workers, []
    for t in range(steps):
        gradients = [grad(i, models[i]) for i in range(workers)]
        scope = gradient_scope(t, start, after)
        gradients = average(gradients, {"all": workers, "group": subgroup, "none": 1}[scope])
        models = [o.step(m, g) for o, m, g in zip(optimizers, models, gradients)]
        if isinstance(period, dict):
            size = hierarchical_average(t, warmup, period)
        else:
            size = workers if periodic_average(t, warmup, period) else None
        if size is not None:
            models = average(models, size)
        history.append(models)
    return history


# ------------------------------------------------------------------ averaged iterates
class ScheduleFree:
    """Schedule-Free (Defazio et al. 2024). kind "sgd", "adamw" or "adamw-paper". Evaluate at x, take gradients at y.

    sgd: L2 decay at y in the gradient. adamw: decay decoupled at y, or at z with decay_at="z". warm-up min(1, k/W)."""

    def __init__(self, theta, kind="sgd", lr=1.0, beta=0.9, b2=0.999, eps=1e-8, decay=0.0, decay_at="y", warmup=0,
                 p=2.0, r=0.0):
        self.__dict__.update({k: v for k, v in locals().items() if k not in ("self", "theta")})
        self.x, self.z = np.array(theta, dtype=float), np.array(theta, dtype=float)
        self.v, self.k, self.largest, self.weight_sum = 0.0, 0, 0.0, 0.0

    @property
    def y(self):
        return self.beta * self.x + (1 - self.beta) * self.z

    def step(self, gradient, lr=None):
        y = self.y
        self.k += 1
        rate = self.lr if lr is None else lr
        if self.warmup:
            rate = rate * min(1.0, self.k / self.warmup)
        correction = 1 - self.b2 ** self.k
        if self.kind == "sgd":
            move = gradient + self.decay * y
        else:
            self.v = self.b2 * self.v + (1 - self.b2) * gradient * gradient
            if self.kind == "adamw-paper":
                rate = rate * math.sqrt(correction)
                move = gradient / (np.sqrt(self.v) + self.eps)
            else:
                move = gradient / (np.sqrt(self.v / correction) + self.eps)
            move = move + self.decay * (y if self.decay_at == "y" else self.z)
        self.z = self.z - rate * move
        self.largest = max(self.largest, rate)
        weight = self.k ** self.r * self.largest ** self.p
        self.weight_sum += weight
        c = weight / self.weight_sum if self.weight_sum else 0.0
        self.x = (1 - c) * self.x + c * self.z


class GPA:
    """GPA (Defazio et al. 2025). base "adamw" (both bias corrections) or "sgd". Evaluate at x, take gradients at y."""

    def __init__(self, theta, lr, mu_y=0.7, mu_x=0.9967, betas=(0.9, 0.999), eps=1e-8, decay=0.0, base="adamw"):
        self.__dict__.update({k: v for k, v in locals().items() if k not in ("self", "theta")})
        self.x, self.z = np.array(theta, dtype=float), np.array(theta, dtype=float)
        self.m = self.v = 0.0
        self.k = 0

    @property
    def y(self):
        return self.mu_y * self.x + (1 - self.mu_y) * self.z

    def step(self, gradient, lr=None):
        y = self.y
        self.k += 1
        direction = gradient
        if self.base == "adamw":
            b1, b2 = self.betas
            self.m = b1 * self.m + (1 - b1) * gradient
            self.v = b2 * self.v + (1 - b2) * gradient * gradient
            direction = self.m / (1 - b1 ** self.k) / (np.sqrt(self.v / (1 - b2 ** self.k)) + self.eps)
        self.direction = direction + self.decay * y
        self.z = self.z - (self.lr if lr is None else lr) * self.direction
        self.x = self.mu_x * self.x + (1 - self.mu_x) * self.z


def gpa_mu_x(h):
    """The mu_x that corresponds to H inner steps of DiLoCo with one worker."""
    return 0.9 ** (1 / h)


# ------------------------------------------------------------------ Dion
class Dion:
    """Dion (Ahn et al. 2025), only for matrices. `starts` has the first Q of each matrix, (smaller side, rank).

    `step` takes one gradient or a list of workers' gradients. With a list, every worker has its own M, and all share
    the means of P and of R (the decoupled form)."""

    def __init__(self, shapes, starts, mu=0.95, decay=0.01, eps=1e-8):
        self.shapes, self.q, self.mu, self.decay, self.eps = shapes, copies(starts), mu, decay, eps
        self.m = None

    def step(self, theta, gradients, lr=0.01):
        theta = np.array(theta, dtype=float)
        gradients = gradients if isinstance(gradients, list) else [gradients]
        if self.m is None:
            self.m = [[np.zeros(shape) for shape in self.shapes] for _ in gradients]
        for index, (shape, cut) in enumerate(zip(self.shapes, pieces(self.shapes))):
            wide = shape[0] < shape[1]
            turned = [(m[index] + g[cut].reshape(shape)) for m, g in zip(self.m, gradients)]
            turned = [m.T if wide else m for m in turned]
            p = sum(m @ self.q[index] for m in turned) / len(turned)
            p, _ = np.linalg.qr(p)
            own = [m.T @ p for m in turned]
            r = sum(own) / len(own)
            for worker, (m, own_r) in enumerate(zip(turned, own)):
                m = m - (1 - self.mu) * p @ own_r.T
                self.m[worker][index] = m.T if wide else m
            self.q[index] = r / (np.linalg.norm(r, axis=0) + self.eps)
            move = p @ self.q[index].T
            move = move.T if wide else move
            theta[cut] = theta[cut] * (1 - lr * self.decay) - lr * math.sqrt(shape[0] / shape[1]) * move.ravel()
        return theta


# ------------------------------------------------------------------ asynchronous DiLoCo family
def heloco_correct(delta, m, k_d=1.0, c_ok=0.2, c_bad=-0.2, kappa=3.0, k_s=0.5, b_max=0.5, eps=1e-8,
                   paper=False):
    """HeLoCo (Al Asif et al. 2026), one tensor: corrects the arriving Delta towards the old m, like the published code.

    paper: lam = k_d (1 - c) conf instead of the code's normalised form."""
    nd, nm = np.linalg.norm(delta), np.linalg.norm(m)
    if nd < 1e-8 or nm < 1e-8:
        return np.array(delta, dtype=float)
    ud, um = delta / nd, m / nm
    c = min(1.0, max(-1.0, float(ud @ um)))
    confidence = nd / (nd + kappa * nm + eps)
    if c >= c_ok:
        return np.array(delta, dtype=float)
    if c < 0:
        b = min(k_s * -c * confidence, b_max)
        return delta - b * (delta @ um) * um
    lam = min(k_d * ((1 - c) if paper else (c_ok - c) / (c_ok - c_bad)) * confidence, 1.0)
    u = (1 - lam) * ud + lam * um
    return nd * u / np.linalg.norm(u)


class LookAheadServer:
    """Momentum look-ahead (Ajanthan et al. 2025) in the server's step and, if `ahead`, in the models handed out.

    With `shapes`, corrects each tensor like HeLoCo. weight(staleness) is rho. Order: Delta <- rho Delta, correction
    with the old m, then m, then Theta."""

    def __init__(self, theta, lr=0.7, gamma=0.9, ahead=True, shapes=None, weight=lambda staleness: 1.0, **correction):
        self.theta, self.m = np.array(theta, dtype=float), np.zeros(len(theta))
        self.lr, self.gamma, self.ahead, self.shapes = lr, gamma, ahead, shapes
        self.weight, self.correction, self.version = weight, correction, 0

    def hand_out(self):
        return self.theta - self.lr * self.gamma * self.m if self.ahead else self.theta.copy()

    def receive(self, delta, staleness=0):
        delta = self.weight(staleness) * delta
        if self.shapes is not None:
            delta = np.concatenate([heloco_correct(delta[cut], self.m[cut], **self.correction)
                                    for cut in pieces(self.shapes)])
        self.m = self.gamma * self.m + (1 - self.gamma) * delta
        self.theta = self.theta - self.lr * (self.gamma * self.m + delta)
        self.version += 1


def heloco_weight(n, by_staleness=False):
    """HeLoCo's rho = sqrt(N)/N, optionally times (1 + staleness)^(-1/2)."""
    return lambda staleness: math.sqrt(n) / n * ((1 + staleness) ** -0.5 if by_staleness else 1.0)


def asynchronous_local_sgd(server, grad, durations, h, make_inner, arrivals):
    """An event simulation with LookAheadServer. Each round has h inner steps and a new inner optimizer.

    durations: time of each local step. Delta = the handed-out model - the end model. Staleness counts versions.
    Returns [(time, Theta)] after each arrival."""
    queue, given = [], {}

    def start(i, now):
        given[i] = (server.hand_out(), server.version)
        heapq.heappush(queue, (now + sum(next(durations[i]) for _ in range(h)), i))

    for i in range(len(durations)):
        start(i, 0.0)
    out = []
    for _ in range(arrivals):
        now, i = heapq.heappop(queue)
        begin, version = given[i]
        w, inner = begin.copy(), make_inner()
        for _ in range(h):
            w = inner.step(w, grad(i, w))
        server.receive(begin - w, server.version - version)
        out.append((now, server.theta))
        start(i, now)
    return out
