"""Random words and normal numbers in compiled loops: one stream for each seed of 128 bits, in single precision.

The words are Philox 4x32-10 (Salmon et al. 2011), a counter encrypted under a key: a stream can be entered anywhere.
The normal numbers are made by Box and Muller's method: every word is used, none is rejected. Logarithm, sine and cosine
are polynomials, not calls of a library, so that the compiler computes eight numbers at a time. |z| is at most 6.66; a
normal number is beyond that with probability 2.7e-11.
"""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.native.compiled import compiled, inlined, shared

Words = NDArray[np.uint32]
Floats = NDArray[np.float32]
F: TypeAlias = np.float32
I: TypeAlias = np.int32  # noqa: E741
U: TypeAlias = np.uint32
L: TypeAlias = np.uint64
BLOCK = 4096  # numbers made at a time: their words stay in a core's nearest cache
TOGETHER = 4  # blocks that a thread takes at a time, which takes it tens of microseconds


def uniform(count: int, seed: Words) -> NDArray[np.float64]:
    """The first numbers of a stream, in [0, 1): multiples of 2⁻⁵³, made of two words each."""
    made = np.empty(count, dtype=np.float64)
    compiled(_uniform, "void(float64[::1], uint32[::1])")(made, seed)
    return made


def add_normal(rows: Tensor, seeds: Words, scale: float, divisors: Sequence[float]) -> None:
    """Row i ← (row i + scale·N(0, I)) / divisor i, with noise from the stream of seed i. On all threads."""
    if not len(rows) == len(seeds) == len(divisors) or seeds.shape[1:] != (4,):
        raise ValueError(f"{len(rows)} rows, seeds of shape {seeds.shape} and {len(divisors)} divisors")
    shares = -(-len(rows) * _blocks(rows.shape[1]) // TOGETHER)
    _add_normal(shares, rows, torch.from_numpy(seeds), scale, torch.tensor(divisors, dtype=torch.float32))


def _uniform(made: NDArray[np.float64], seed: Words) -> None:
    half = (len(made) + 1) // 2
    room = np.empty(4 * half, dtype=U)
    fill(room, 0, seed)
    for i in range(len(made)):
        made[i] = np.float64((L(room[i]) << L(21)) | (L(room[2 * half + i]) >> L(11))) * 2.0**-53


def _room(rows: Floats, seeds: Words, scale: float, divisors: Floats) -> Words:
    return np.empty(BLOCK, dtype=np.uint32)


@shared(_room, rows=(torch.float32, 2), seeds=(torch.uint32, 2), scale=float, divisors=(torch.float32, 1))
def _add_normal(item: int, room: Words, rows: Floats, seeds: Words, scale: float, divisors: Floats) -> None:
    """An item is TOGETHER blocks. Blocks are counted through all rows; the last block of a row may be shorter."""
    columns, each = rows.shape[1], blocks(rows.shape[1])
    for block in range(item * TOGETHER, min((item + 1) * TOGETHER, len(rows) * each)):
        row, start = block // each, block % each * BLOCK
        part = rows[row, start : min(start + BLOCK, columns)]
        quarter, half = (len(part) + 3) // 4, (len(part) + 1) // 2
        fill(room[: 4 * quarter], start // 4, seeds[row])
        radii, angles = room[: 2 * quarter], room[2 * quarter :]
        add_pairs(radii, angles, part[:half], part[half:], F(scale), F(1) / divisors[row])


def _blocks(columns: int) -> int:
    return (columns + BLOCK - 1) // BLOCK


def _add_pairs(
    radii: Words, angles: Words, cosines: Floats, sines: Floats, scale: np.float32, factor: np.float32
) -> None:
    """Adds r·cos θ of pair i to cosines[i] and r·sin θ to sines[i]; there may be one sine less than cosines."""
    for i in range(len(sines)):
        r, cosine, sine = pair(radii[i], angles[i])
        cosines[i] = (cosines[i] + scale * r * cosine) * factor
        sines[i] = (sines[i] + scale * r * sine) * factor
    if len(cosines) > len(sines):
        last = len(sines)
        r, cosine, sine = pair(radii[last], angles[last])
        cosines[last] = (cosines[last] + scale * r * cosine) * factor


def _fill(room: Words, first: int, seed: Words) -> None:
    """The four words of counter `first` + i go to place i of the room's four quarters."""
    quarter = len(room) // 4
    a, b, c, d = room[:quarter], room[quarter : 2 * quarter], room[2 * quarter : 3 * quarter], room[3 * quarter :]
    s0, s1, s2, s3 = seed[0], seed[1], seed[2], seed[3]
    for i in range(quarter):
        at = L(first + i)
        a[i], b[i], c[i], d[i] = philox(U(at), U(at >> L(32)), s0, s1, s2, s3)


def _philox(c0: U, c1: U, c2: U, c3: U, k0: U, k1: U) -> tuple[U, U, U, U]:
    """Ten rounds, written out: the compiler works on several counters at once only if there is no inner loop."""
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, k0, k1)
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0x9E3779B9)), U(k1 + U(0xBB67AE85)))
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0x3C6EF372)), U(k1 + U(0x76CF5D0A)))
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0xDAA66D2B)), U(k1 + U(0x32370B8F)))
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0x78DDE6E4)), U(k1 + U(0xED9EBA14)))
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0x1715609D)), U(k1 + U(0xA9066899)))
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0xB54CDA56)), U(k1 + U(0x646E171E)))
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0x5384540F)), U(k1 + U(0x1FD5C5A3)))
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0xF1BBCDC8)), U(k1 + U(0xDB3D7428)))
    c0, c1, c2, c3 = turn(c0, c1, c2, c3, U(k0 + U(0x8FF34781)), U(k1 + U(0x96A522AD)))
    return c0, c1, c2, c3


def _turn(c0: U, c1: U, c2: U, c3: U, k0: U, k1: U) -> tuple[U, U, U, U]:
    """One round of Philox: two products of 32-bit words, whose halves change places."""
    one, two = L(L(c0) * L(0xD2511F53)), L(L(c2) * L(0xCD9E8D57))
    return U(U(U(two >> L(32)) ^ c1) ^ k0), U(two), U(U(U(one >> L(32)) ^ c3) ^ k1), U(one)


def _pair(radius: U, angle: U) -> tuple[F, F, F]:
    """√(−2 ln u) with u = (⌊radius/2⌋ + ½)/2³¹, and cosine and sine of 2π·angle/2³². The polynomials are Cephes'."""
    # ln u = ln m + k·ln 2 with m within [√½, √2). ln 2 is the sum of two constants, so that none of its digits is lost.
    u = F(I(U(radius >> U(1)))) + F(0.5)
    bits = np.float32(u).view(np.int32)
    exponent = I(I(bits - I(0x3F3504F3)) >> I(23))
    m = np.int32(bits - I(exponent << I(23))).view(np.float32) - F(1)
    k = F(I(exponent - I(31)))
    square = m * m
    p = F(7.0376836292e-2)
    p = p * m + F(-1.1514610310e-1)
    p = p * m + F(1.1676998740e-1)
    p = p * m + F(-1.2420140846e-1)
    p = p * m + F(1.4249322787e-1)
    p = p * m + F(-1.6668057665e-1)
    p = p * m + F(2.0000714765e-1)
    p = p * m + F(-2.4999993993e-1)
    p = p * m + F(3.3333331174e-1)
    ln = m + (p * m * square + k * F(-2.12194440e-4) - F(0.5) * square) + k * F(0.693359375)
    r = np.sqrt(max(F(0), F(-2) * ln))

    # The angle is a number of quarter turns, and t, which is at most an eighth of a turn
    quarters = U(U(angle + U(1 << 29)) >> U(30))
    t = F(I(U(angle - U(quarters << U(30))))) * F(np.pi / 2**31)
    t2 = t * t
    sine = ((F(-1.9515295891e-4) * t2 + F(8.3321608736e-3)) * t2 + F(-1.6666654611e-1)) * t2 * t + t
    cosine = (F(2.443315711809948e-5) * t2 + F(-1.388731625493765e-3)) * t2 + F(4.166664568298827e-2)
    cosine = cosine * t2 * t2 - F(0.5) * t2 + F(1)
    odd = U(quarters & U(1)) != U(0)
    down, left = F(I(U(quarters & U(2)))), F(I(U(U(quarters + U(1)) & U(2))))  # 2 where sine, cosine change sign
    return r, (sine if odd else cosine) * (F(1) - left), (cosine if odd else sine) * (F(1) - down)


turn, pair = inlined(_turn), inlined(_pair)
philox = inlined(_philox)
blocks, fill, add_pairs = inlined(_blocks), inlined(_fill), inlined(_add_pairs)
