"""Noise in double precision, added and rounded to a grid in one compiled loop: what a deployment does to each number.

Box and Muller's method makes two normal numbers of two words of 64 bits. It rejects none, so its running time
tells nothing of them. |z| is at most 9.49; a normal number is beyond that with probability 2.3e-21. Logarithm, sine and
cosine are fdlibm's polynomials, right to the last digit or the one before it, written out so that the compiler computes
several at a time.
"""

from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedfdp.native.compiled import inlined, shared

PAIRS = 4096  # that a thread takes at a time
D: TypeAlias = np.float64
L: TypeAlias = np.uint64
S: TypeAlias = np.int64
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]


def add_noise_(values: Tensor, words: Tensor, *, scale: float, step: float, divisor: float) -> Tensor:
    """v_i ← (the multiple of `step` nearest to v_i + scale·z_i) / divisor, in place. z_i is made of the words.

    Values are of double precision; `step` is a power of two, so that dividing by it is exact.
    """
    half = (len(values) + 1) // 2
    if words.shape != (2 * half,):
        raise ValueError(f"{len(words)} words for {len(values)} numbers")
    _add(-(-half // PAIRS), values, words, scale, step, divisor)
    return values


@shared(values=(torch.float64, 1), words=(torch.uint64, 1), scale=float, step=float, divisor=float)
def _add(item: int, values: Floats, words: Words, scale: float, step: float, divisor: float) -> None:
    """An item is PAIRS pairs. The first half of the words are radii, the others angles; cosines come before sines."""
    half = len(words) // 2
    low, high = item * PAIRS, min((item + 1) * PAIRS, half)
    radii, angles, cosines = words[low:high], words[half + low : half + high], values[low:high]
    sines = values[half + low : min(half + high, len(values))]  # one less in all if there is an odd number of values
    for i in range(len(sines)):
        r, cosine, sine = pair(radii[i], angles[i])
        cosines[i] = np.rint((cosines[i] + scale * (r * cosine)) / step) * step / divisor
        sines[i] = np.rint((sines[i] + scale * (r * sine)) / step) * step / divisor
    if len(cosines) > len(sines):
        last = len(sines)
        r, cosine, sine = pair(radii[last], angles[last])
        cosines[last] = np.rint((cosines[last] + scale * (r * cosine)) / step) * step / divisor


def _pair(radius: L, angle: L) -> tuple[D, D, D]:
    """√(−2 ln u) with u = (radius + ½)/2⁶⁴, and cosine and sine of 2π·angle/2⁶⁴."""
    # ln u = ln m + k·ln 2 with m within [√½, √2). ln 2 is the sum of two constants, so that none of its digits is lost.
    u = D(radius) + 0.5
    bits = D(u).view(S)
    exponent = S(S(bits - S(0x3FE6A09E667F3BCD)) >> S(52))
    f = S(bits - S(exponent << S(52))).view(D) - 1.0
    k = D(S(exponent - S(64)))
    s, square = f / (2.0 + f), 0.5 * f * f
    z = s * s
    p = 1.479819860511658591e-01
    p = p * z + 1.531383769920937332e-01
    p = p * z + 1.818357216161805012e-01
    p = p * z + 2.222219843214978396e-01
    p = p * z + 2.857142874366239149e-01
    p = p * z + 3.999999999940941908e-01
    p = p * z + 6.666666666666735130e-01
    ln = k * 6.93147180369123816490e-01 - (square - (s * (square + p * z) + k * 1.90821492927058770002e-10) - f)
    r = np.sqrt(max(0.0, -2.0 * ln))

    # The angle is a number of quarter turns, and t, which is at most an eighth of a turn
    quarters = L(L(angle + L(1 << 61)) >> L(62))
    t = D(S(L(angle - L(quarters << L(62))))) * (np.pi / 2**63)
    t2 = t * t
    p = 1.58969099521155010221e-10
    p = p * t2 + -2.50507602534068634195e-08
    p = p * t2 + 2.75573137070700676789e-06
    p = p * t2 + -1.98412698298579493134e-04
    p = p * t2 + 8.33333333332248946124e-03
    p = p * t2 + -1.66666666666666324348e-01
    sine = p * t2 * t + t
    p = -1.13596475577881948265e-11
    p = p * t2 + 2.08757232129817482790e-09
    p = p * t2 + -2.75573143513906633035e-07
    p = p * t2 + 2.48015872894767294178e-05
    p = p * t2 + -1.38888888888741095749e-03
    p = p * t2 + 4.16666666666666019037e-02
    cosine = p * t2 * t2 - 0.5 * t2 + 1.0
    odd = L(quarters & L(1)) != L(0)
    down, left = D(S(quarters & L(2))), D(S(L(L(quarters + L(1)) & L(2))))  # 2 where sine, cosine change sign
    return r, (sine if odd else cosine) * (1.0 - left), (cosine if odd else sine) * (1.0 - down)


pair = inlined(_pair)
