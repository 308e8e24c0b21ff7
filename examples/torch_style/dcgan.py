"""A generative adversarial network of convolutions (A. Radford, L. Metz, S. Chintala, 2015)."""
import argparse

import numpy as np

import adjoint as torch
import adjoint.nn as nn
import adjoint.optim as optim
from adjoint.utils.data import DataLoader, TensorDataset


def rings(count, seed):
    """Pictures of 16 x 16 in [-1, 1]: a ring of a random place and size."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:16, :16]
    found = []
    for _ in range(count):
        d = np.hypot(x - rng.uniform(6, 10), y - rng.uniform(6, 10))
        found.append(2 * np.exp(-(d - rng.uniform(2, 5)) ** 2) - 1)
    return torch.tensor(np.stack(found)[:, None], dtype=torch.get_default_dtype())


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz=16, ngf=16, nc=1):
        super().__init__()
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf, nc, 4, 2, 1, bias=False),
            nn.Tanh(),
        )

    def forward(self, input):
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self, ndf=16, nc=1):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, ndf, 4, 2, 1, bias=False),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1, bias=False),
            nn.BatchNorm2d(ndf * 2),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(ndf * 2, 1, 4, 1, 0, bias=False),
            nn.Sigmoid(),
        )

    def forward(self, input):
        return self.main(input).view(-1, 1).squeeze(1)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.0005)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(3)
    torch.backends.cudnn.benchmark = True
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    rng = np.random.default_rng(0)

    def noise(n):
        values = torch.from_numpy(rng.standard_normal((n, 16, 1, 1)))
        return values.to(device, torch.get_default_dtype())

    dataloader = DataLoader(TensorDataset(rings(256, 0)), batch_size=32, drop_last=True)
    netG, netD = Generator().to(device), Discriminator().to(device)
    netG.apply(weights_init)
    netD.apply(weights_init)
    if args.write_init:
        torch.save({"G": netG.state_dict(), "D": netD.state_dict()}, args.write_init)
    if args.init:
        held = torch.load(args.init)
        netG.load_state_dict(held["G"])
        netD.load_state_dict(held["D"])
    criterion = nn.BCELoss()
    fixed_noise = noise(8)
    real_label, fake_label = 1, 0
    optimizerD = optim.Adam(netD.parameters(), lr=args.lr, betas=(0.5, 0.999))
    optimizerG = optim.Adam(netG.parameters(), lr=args.lr, betas=(0.5, 0.999))
    losses = []
    for epoch in range(args.epochs):
        for i, data in enumerate(dataloader, 0):  # noqa: B007 (printed after the loop)
            # discriminator: log D(x) + log(1 - D(G(z)))
            netD.zero_grad()
            real = data[0].to(device)
            batch_size = real.size(0)
            label = torch.full((batch_size,), real_label, dtype=real.dtype, device=device)
            output = netD(real)
            errD_real = criterion(output, label)
            errD_real.backward()
            D_x = output.mean().item()
            fake = netG(noise(batch_size))
            label.fill_(fake_label)
            output = netD(fake.detach())
            errD_fake = criterion(output, label)
            errD_fake.backward()
            D_G_z1 = output.mean().item()
            errD = errD_real + errD_fake
            optimizerD.step()
            # generator: log D(G(z))
            netG.zero_grad()
            label.fill_(real_label)
            output = netD(fake)
            errG = criterion(output, label)
            errG.backward()
            optimizerG.step()
            losses += [errD.item(), errG.item()]
        print(f"[{epoch}/{args.epochs}][{i}/{len(dataloader)}] Loss_D: {errD.item():.4f} "
              f"Loss_G: {errG.item():.4f} D(x): {D_x:.4f} D(G(z)): {D_G_z1:.4f}")
    netG.eval()
    with torch.no_grad():
        print("pictures", tuple(netG(fixed_noise).detach().cpu().shape))
    return losses


if __name__ == "__main__":
    main()
