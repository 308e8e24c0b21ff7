"""A variational autoencoder of small pictures (D. Kingma and M. Welling, 2013).

The noise comes from NumPy, so that the same program gives the same losses in every library.
"""
import argparse

import numpy as np

import adjoint as torch
from adjoint import nn, optim
from adjoint.nn import functional as F
from adjoint.utils.data import DataLoader, TensorDataset


def shapes(count, seed):
    """Pictures of 12 x 12: a bright disc or square at a random place."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:12, :12]
    pictures = []
    for _ in range(count):
        cx, cy, r = rng.uniform(3, 9), rng.uniform(3, 9), rng.uniform(1.5, 3)
        d = np.hypot(x - cx, y - cy) if rng.random() < 0.5 else np.maximum(abs(x - cx), abs(y - cy))
        pictures.append(1 / (1 + np.exp(4 * (d - r))))
    return torch.tensor(np.stack(pictures)[:, None], dtype=torch.get_default_dtype())


class VAE(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.fc1 = nn.Linear(144, 64)
        self.fc21 = nn.Linear(64, 4)
        self.fc22 = nn.Linear(64, 4)
        self.fc3 = nn.Linear(4, 64)
        self.fc4 = nn.Linear(64, 144)
        self.rng = rng

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.from_numpy(self.rng.standard_normal(tuple(std.shape))).to(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 144))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    """Reconstruction, and the divergence of the code from a normal distribution."""
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 144), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(shapes(512, 0)), batch_size=args.batch_size)
    held_out = shapes(64, 1)
    model = VAE(np.random.default_rng(2)).to("cpu")
    if args.write_init:
        torch.save(model.state_dict(), args.write_init)
    if args.init:
        model.load_state_dict(torch.load(args.init, weights_only=True))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for epoch in range(1, args.epochs + 1):
        model.train()
        train_loss = 0
        for (data,) in loader:
            optimizer.zero_grad()
            recon_batch, mu, logvar = model(data)
            loss = loss_function(recon_batch, data, mu, logvar)
            loss.backward()
            train_loss += loss.item()
            optimizer.step()
            losses.append(loss.item() / len(data))
        model.eval()
        with torch.no_grad():
            recon, mu, logvar = model(held_out)
            test_loss = loss_function(recon, held_out, mu, logvar).item() / len(held_out)
        print(f"epoch {epoch}: average loss {train_loss / len(loader.dataset):.4f}, "
              f"test loss {test_loss:.4f}")
    with torch.inference_mode():
        sample = model.decode(torch.randn(8, 4)).cpu().view(8, 1, 12, 12)
    print("sampled", tuple(sample.shape), "brightness", round(sample.mean().item(), 3))
    return losses


if __name__ == "__main__":
    main()
