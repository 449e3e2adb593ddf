"""The scattering transform of an image (Bruna & Mallat 2013; Oyallon & Mallat 2015): wavelets, moduli, averages.

Nothing in it is learnt. It is computed by direct convolutions, which for small images is faster than by FFT.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from fedfdp.core.errors import SettingError

ANGLES = 8  # L; the number of scales J is 2
WIDTH, FREQUENCY, SLANT = 0.8, 3 * math.pi / 4, 4 / ANGLES  # of ψ_{j,θ}: WIDTH·2^j and FREQUENCY·2^−j
FINE, COARSE = 11, 20  # sides of the kernels of ψ_0 and ψ_1
LEAST = 12  # pixels: below this, the border reaches everywhere
CHANNELS = 1 + 2 * ANGLES + ANGLES**2  # for each colour
EPSILON = 1e-5
OPPOSED = ((1.0, 1.0, 1.0), (1.0, 0.0, -1.0), (1.0, -2.0, 1.0))  # of red, green, blue: brightness and differences


class Scattering(nn.Module):
    """Images (records, colours, height, width) to features (records, 81·colours, height / 4, width / 4).

    For each colour: x∗φ, |x∗ψ_{0,θ}|∗φ and |x∗ψ_{1,θ}|∗φ (16), ||x∗ψ_{0,θ}|∗ψ_{1,θ'}|∗φ (64). One value stands for a
    block of 4×4 pixels, at its centre. Images are mirrored at their border. Then each group of channels of a record
    gets mean 0 and variance 1, without learnt constants.
    """

    psi_0: Tensor
    psi_1: Tensor
    phi_fine: Tensor
    phi_coarse: Tensor
    swapped: Tensor
    opposed: Tensor
    version = 1  # rises whenever the same image gets other features

    def __init__(
        self, *, opponent: bool = True, mirror: bool = False, power: float = 1.0, groups: int = 27, common: float = 1.0
    ) -> None:
        """How the features are made.

        Args:
            opponent: whether red, green and blue become brightness and two differences of colours first; without it the
                three sets of features are nearly the same. Images with another number of colours stay as they are.
            mirror: whether an image and its mirror image get the same features, half as many: for things that look
                alike from both sides, so not for digits.
            power: moduli are raised to it before the normalisation; 0.5 makes faint structure count more.
            groups: of channels that are normalised together; it divides 81.
            common: how much of what the channels of one kind have in common stays, after the normalisation. It is much
                the same in all images, so it takes up the bound C of each gradient and says little: 0.3 learns more at
                the same ε; 1 leaves the features as they are.
        """
        super().__init__()
        if not isinstance(groups, int) or groups < 1 or CHANNELS % groups:
            raise SettingError("features.arguments.groups", groups, f"a divisor of {CHANNELS}", "27 is usual")
        if not 0 < power <= 1:
            raise SettingError(
                "features.arguments.power", power, "above 0 and at most 1", "1 leaves moduli as they are"
            )
        if not 0 <= common <= 1:
            raise SettingError("features.arguments.common", common, "from 0 to 1", "1 leaves features as they are")
        self.opponent, self.groups, self.mirror, self.power, self.common = opponent, groups, mirror, power, common
        for name, kernel in (
            ("psi_0", _morlet(0, FINE)),
            ("psi_1", _morlet(1, COARSE)),
            ("phi_fine", _gaussian(2 * WIDTH, 12)),
            ("phi_coarse", _gaussian(WIDTH, 6)),  # φ on every second pixel
            ("opposed", torch.tensor(OPPOSED) / torch.tensor(OPPOSED).norm(dim=1, keepdim=True)),
        ):
            self.register_buffer(name, kernel, persistent=False)
        swapped = [(-k) % ANGLES for k in range(ANGLES)]  # the angle π − θ of each θ
        first = [0, *(1 + k for k in swapped), *(1 + ANGLES + k for k in swapped)]
        second = [1 + 2 * ANGLES + ANGLES * a + b for a in swapped for b in swapped]
        self.register_buffer("swapped", torch.tensor(first + second), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """The features of each image by itself."""
        if x.dim() != 4 or min(x.shape[2:]) < LEAST:
            allowed = f"needs images of at least {LEAST}×{LEAST}, the records have shape {tuple(x.shape[1:])}"
            raise SettingError("features.name", "scattering", allowed, "leave [features] out")
        records, colours, height, width = x.shape
        if self.opponent and colours == 3:
            x = torch.einsum("oc,rchw->rohw", self.opposed, x)
        grey = x.reshape(records * colours, 1, height, width)
        fine = _modulus(_convolved(grey, self.psi_0, stride=1))  # (·, 8, height, width)
        coarse = _modulus(_convolved(grey, self.psi_1, stride=2))  # (·, 8, height / 2, width / 2)
        both = _modulus(_convolved(fine.reshape(-1, 1, height, width), self.psi_1, stride=2))
        both = both.reshape(len(grey), ANGLES**2, height // 2, width // 2)
        parts = [
            _averaged(grey, self.phi_fine, stride=4),
            _averaged(fine, self.phi_fine, stride=4).clamp_min(0),
            _averaged(torch.cat([coarse, both], 1), self.phi_coarse, stride=2).clamp_min(0),
        ]
        if self.power != 1:
            parts[1:] = [part.pow(self.power) for part in parts[1:]]
        found = torch.cat(parts, 1)  # (·, 81, height / 4, width / 4)
        if self.mirror:
            found = (found + found[:, self.swapped].flip(-1)) / 2
            found = found[..., : (found.shape[-1] + 1) // 2]
        found = found.reshape(records, colours * CHANNELS, *found.shape[2:])
        found = functional.group_norm(found, self.groups, eps=EPSILON)
        return found if self.common == 1 else self._contrasted(found, colours)

    def _contrasted(self, found: Tensor, colours: int) -> Tensor:
        """Less of the mean over the angles: for each colour, of both scales and of the second order."""
        parts = []
        for kind in found.tensor_split(self._edges(colours), dim=1):
            common = kind.mean(1, keepdim=True) if kind.shape[1] > 1 else torch.zeros_like(kind)
            parts.append(kind - (1 - self.common) * common)
        return torch.cat(parts, 1)

    @staticmethod
    def _edges(colours: int) -> list[int]:
        """Where the kinds of channels begin: x∗φ, two scales, the second order."""
        starts = (0, 1, 1 + ANGLES, 1 + 2 * ANGLES)
        return [CHANNELS * colour + start for colour in range(colours) for start in starts][1:]


def _morlet(j: int, side: int) -> Tensor:
    """ψ_{j,θ} for all angles: (2·8, 1, side, side), real parts first. Its mean is taken off."""
    width, frequency = WIDTH * 2**j, FREQUENCY / 2**j
    at = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    down, right = torch.meshgrid(at, at, indexing="ij")
    real, imaginary = [], []
    for k in range(ANGLES):
        angle = math.pi * k / ANGLES
        along = right * math.cos(angle) + down * math.sin(angle)
        across = down * math.cos(angle) - right * math.sin(angle)
        bell = torch.exp(-(along**2 + (SLANT * across) ** 2) / (2 * width**2))
        bell = bell * SLANT / (2 * math.pi * width**2)
        cosine, sine = bell * torch.cos(frequency * along), bell * torch.sin(frequency * along)
        real.append(cosine - bell * (cosine.sum() / bell.sum()))
        imaginary.append(sine)  # odd, so its mean is 0
    return torch.stack(real + imaginary).unsqueeze(1).float()


def _gaussian(width: float, side: int) -> Tensor:
    at = torch.arange(side, dtype=torch.float64) - (side - 1) / 2
    bell = torch.exp(-(at**2) / (2 * width**2))
    kernel = torch.outer(bell, bell)
    return (kernel / kernel.sum()).reshape(1, 1, side, side).float()


def _convolved(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """One channel with each kernel. With a stride, values are at the centres of blocks of stride × stride pixels."""
    edge = kernel.shape[-1] - stride
    before, after = edge // 2, edge - edge // 2
    return functional.conv2d(functional.pad(x, (before, after, before, after), mode="reflect"), kernel, stride=stride)


def _averaged(x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """Each channel with the same kernel."""
    flat = _convolved(x.reshape(-1, 1, *x.shape[2:]), kernel, stride)
    return flat.reshape(*x.shape[:2], *flat.shape[2:])


def _modulus(parts: Tensor) -> Tensor:
    real, imaginary = parts.chunk(2, 1)
    return (real.square() + imaginary.square()).sqrt()  # torch's abs of complex numbers is much slower
