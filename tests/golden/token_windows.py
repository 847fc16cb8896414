"""Writes token_windows.json: token files in nanoGPT's and llm.c's formats, their windows, and windows at random
positions, for tests/workers/token_stream_test.cpp.

    python3 tests/golden/token_windows.py [--check]

No code of the program is used. struct and numpy write the files, as in the scripts of nanoGPT and llm.c. The windows
are slices. The random positions come from Philox 4x32-10, written from its paper (Salmon et al. 2011).
"""
import json
import pathlib
import struct
import sys

import numpy as np

CONTEXT = 5
MAGIC_AND_VERSION = {"uint16": (20240520, 1), "uint32": (20240801, 7)}
DATA_ORDER, WINDOW_STREAM = 3, 2  # the program's purpose and stream of these random numbers


def tokens(count, below, seed):
    return np.random.RandomState(seed).randint(0, below, count)


def token_file(values, kind, header):
    content = values.astype("<" + {"uint8": "u1", "uint16": "u2", "uint32": "u4"}[kind]).tobytes()
    if header:
        content = struct.pack("<256i", *MAGIC_AND_VERSION[kind], len(values), *[0] * 253) + content
    return content


def windows(shards):
    return [shard[i:i + CONTEXT + 1].tolist() for shard in shards for i in range(0, len(shard) - CONTEXT, CONTEXT)]


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def uniform(seed, sample, epoch):
    """The first number of the stream: 52 of its first 64 random bits, at the centre of their interval."""
    low, high = philox([0, sample, epoch, DATA_ORDER | WINDOW_STREAM << 8], [seed & 0xFFFFFFFF, seed >> 32])[:2]
    return ((high << 32 | low) >> 12) * 2.0**-52 + 2.0**-53


def random_window(shards, seed, sample, epoch):
    places = [shard[i:i + CONTEXT + 1].tolist() for shard in shards for i in range(len(shard) - CONTEXT)]
    return places[int(uniform(seed, sample, epoch) * len(places))]


def case(kind, header, below):
    """Training shards of 43, 5 and 26 tokens, of which the second is shorter than a window, and a test shard of 12."""
    shards = [tokens(count, below, seed) for seed, count in enumerate([43, 5, 26])]
    test = tokens(12, below, 7)
    visits = [(seed, sample, epoch) for seed in (0, 3 << 40 | 5) for sample in (0, 7, 2**31 + 1) for epoch in (0, 1, 9)]
    return {"type": kind, "header": header, "context": CONTEXT,
            "train_files": [token_file(shard, kind, header).hex() for shard in shards],
            "test_file": token_file(test, kind, header).hex(),
            "vocabulary": int(max(test.max(), max(shard.max() for shard in shards))) + 1,
            "train": windows(shards), "test": windows([test]),
            "random": [{"seed": s, "sample": i, "epoch": e, "window": random_window(shards, s, i, e)}
                       for s, i, e in visits]}


def main():
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]  # Random123's known answer
    cases = [case("uint8", False, 200), case("uint16", False, 60000), case("uint16", True, 50257),
             case("uint32", False, 128256), case("uint32", True, 128256)]
    text = "[\n" + ",\n".join(json.dumps(one) for one in cases) + "\n]\n"
    file = pathlib.Path(__file__).with_suffix(".json")
    if sys.argv[1:] == ["--check"]:
        sys.exit(0 if file.read_text() == text else "token_windows.json differs")
    file.write_text(text)


main()
