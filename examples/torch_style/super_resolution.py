"""Super-resolution by sub-pixel convolution (W. Shi et al., 2016).

A program for `torch`; run it here by
`adjoint run --as-torch examples/torch_style/super_resolution.py`.
"""

import argparse
from math import log10

import numpy as np
import torch
import torch.nn as nn
import torch.nn.init as init
import torch.optim as optim
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    """Smooth random pictures of 24 x 24, and the same at half the size."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        y, x = np.mgrid[:24, :24] / 24
        waves = [sum(np.sin(2 * np.pi * (rng.uniform(-4, 4) * x + rng.uniform(-4, 4) * y)
                            + rng.uniform(0, 6)) for _ in range(4)) for _ in range(count)]
        self.pictures = np.stack(waves)[:, None] / 8 + 0.5

    def __len__(self):
        return len(self.pictures)

    def __getitem__(self, index):
        target = torch.tensor(self.pictures[index], dtype=torch.get_default_dtype())
        small = nn.functional.interpolate(target[None], scale_factor=0.5, mode="bilinear",
                                          align_corners=False)[0]
        return small, target


class Net(nn.Module):
    def __init__(self, upscale_factor):
        super().__init__()
        self.relu = nn.ReLU()
        self.conv1 = nn.Conv2d(1, 32, (5, 5), (1, 1), (2, 2))
        self.conv2 = nn.Conv2d(32, 32, (3, 3), (1, 1), (1, 1))
        self.conv3 = nn.Conv2d(32, 16, (3, 3), (1, 1), (1, 1))
        self.conv4 = nn.Conv2d(16, upscale_factor ** 2, (3, 3), (1, 1), (1, 1))
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self._initialize_weights()

    def forward(self, x):
        x = self.relu(self.conv1(x))
        x = self.relu(self.conv2(x))
        x = self.relu(self.conv3(x))
        return self.pixel_shuffle(self.conv4(x))

    def _initialize_weights(self):
        init.orthogonal_(self.conv1.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv2.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv3.weight, init.calculate_gain("relu"))
        init.orthogonal_(self.conv4.weight)


def main(argv=None):
    parser = argparse.ArgumentParser(description="super-resolution")
    parser.add_argument("--upscale_factor", type=int, default=2)
    parser.add_argument("--batchSize", type=int, default=16)
    parser.add_argument("--nEpochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.002)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=123)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    opt = parser.parse_args(argv)
    torch.manual_seed(opt.seed)
    use_mps = torch.backends.mps.is_available()
    device = torch.device("mps" if use_mps else "cpu")
    training = DataLoader(dataset=Waves(128, 0), num_workers=opt.threads,
                          batch_size=opt.batchSize, shuffle=False)
    testing = DataLoader(dataset=Waves(32, 1), num_workers=opt.threads, batch_size=16)
    model = Net(upscale_factor=opt.upscale_factor).to(device)
    if opt.write_init:
        torch.save(model.state_dict(), opt.write_init)
    if opt.init:
        model.load_state_dict(torch.load(opt.init))
    criterion = nn.MSELoss()
    optimizer = optim.Adam(model.parameters(), lr=opt.lr)
    losses = []
    for epoch in range(1, opt.nEpochs + 1):
        epoch_loss = 0
        for batch in training:
            input, target = batch[0].to(device), batch[1].to(device)
            optimizer.zero_grad()
            loss = criterion(model(input), target)
            epoch_loss += loss.item()
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
        avg_psnr = 0
        with torch.no_grad():
            for input, target in testing:
                mse = criterion(model(input.to(device)), target.to(device))
                avg_psnr += 10 * log10(1 / mse.item())
        print(f"===> Epoch {epoch} Complete: Avg. Loss: {epoch_loss / len(training):.4f}, "
              f"PSNR: {avg_psnr / len(testing):.4f} dB")
    return losses


if __name__ == "__main__":
    print(*(f"{loss:.9g}" for loss in main()))
