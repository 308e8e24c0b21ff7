"""Two views through one network: are these digits the same? (J. Bromley et al., 1993)."""
import argparse

import numpy as np

import adjoint as torch
import adjoint.nn as nn
import adjoint.nn.functional as F
import adjoint.optim as optim
from adjoint.optim.lr_scheduler import StepLR
from adjoint.utils.data import DataLoader, Dataset


class Pairs(Dataset):
    """Pairs of noisy 12 x 12 patterns of 6 kinds; the target is 1 where the kinds are equal."""

    def __init__(self, count, seed):
        rng = np.random.default_rng(seed)
        kinds = np.random.default_rng(99).standard_normal((6, 12, 12))
        self.first = rng.integers(0, 6, count)
        self.second = np.where(rng.random(count) < 0.5, self.first, rng.integers(0, 6, count))
        noise = 0.7 * rng.standard_normal((2, count, 1, 12, 12))
        self.pictures = noise + kinds[np.stack([self.first, self.second])][:, :, None]

    def __len__(self):
        return len(self.first)

    def __getitem__(self, index):
        dtype = torch.get_default_dtype()
        one, two = (torch.tensor(p[index], dtype=dtype) for p in self.pictures)
        same = self.first[index] == self.second[index]
        return one, two, torch.tensor(float(same), dtype=dtype)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d((3, 3)),
        )
        self.fc = nn.Sequential(
            nn.Linear(2 * 144, 32),
            nn.ReLU(inplace=True),
            nn.Linear(32, 1),
        )
        self.sigmoid = nn.Sigmoid()
        self.features.apply(self.init_weights)
        self.fc.apply(self.init_weights)

    def init_weights(self, m):
        if isinstance(m, nn.Linear):
            torch.nn.init.xavier_uniform_(m.weight)
            m.bias.data.fill_(0.01)

    def forward_once(self, x):
        output = self.features(x)
        return output.view(output.size()[0], -1)

    def forward(self, input1, input2):
        output1, output2 = self.forward_once(input1), self.forward_once(input2)
        both = torch.cat(((output1 - output2).abs(), output1 * output2), 1)
        return self.sigmoid(self.fc(both)), F.pairwise_distance(output1, output2)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--lr", type=float, default=0.003)
    parser.add_argument("--margin", type=float, default=2.0)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(1)
    train_loader = DataLoader(Pairs(512, 0), batch_size=args.batch_size)
    test_loader = DataLoader(Pairs(128, 1), batch_size=64)
    model = SiameseNetwork().to("cpu")
    if args.write_init:
        torch.save(model.state_dict(), args.write_init)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    criterion = nn.BCELoss()
    optimizer = optim.Adam(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.7)
    losses = []
    for epoch in range(1, args.epochs + 1):
        model.train()
        for images_1, images_2, targets in train_loader:
            optimizer.zero_grad()
            outputs, distance = model(images_1, images_2)
            contrast = (targets * distance.pow(2)
                        + (1 - targets) * torch.clamp(args.margin - distance, min=0.0).pow(2))
            loss = criterion(outputs.squeeze(), targets) + 0.1 * contrast.mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        correct = 0
        with torch.no_grad():
            for images_1, images_2, targets in test_loader:
                outputs = model(images_1, images_2)[0].squeeze()
                pred = torch.where(outputs > 0.5, 1, 0)
                correct += pred.eq(targets.view_as(pred)).sum().item()
        print(f"epoch {epoch}: loss {losses[-1]:.4f}, accuracy "
              f"{correct}/{len(test_loader.dataset)}, lr {scheduler.get_last_lr()[0]:.5f}")
        scheduler.step()
    return losses


if __name__ == "__main__":
    main()
