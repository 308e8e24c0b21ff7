"""A convolutional network that reads digits: conv, conv, pool, dropout, two linear layers.

The digits are drawn here (a 5 x 7 font, shifted and covered with noise), so nothing is downloaded.
Change the three imports to `torch` and it is a PyTorch program.
"""
import argparse

import numpy as np

import adjoint as torch
import adjoint.nn as nn
import adjoint.nn.functional as F
from adjoint.optim.lr_scheduler import StepLR
from adjoint.utils.data import DataLoader, Dataset, Sampler

FONT = ("01110 10001 10011 10101 11001 10001 01110|00100 01100 00100 00100 00100 00100 01110|"
        "01110 10001 00001 00110 01000 10000 11111|11111 00010 00100 00010 00001 10001 01110|"
        "00010 00110 01010 10010 11111 00010 00010|11111 10000 11110 00001 00001 10001 01110|"
        "00110 01000 10000 11110 10001 10001 01110|11111 00001 00010 00100 01000 01000 01000|"
        "01110 10001 10001 01110 10001 10001 01110|01110 10001 10001 01111 00001 00010 01100")


class Digits(Dataset):
    """`count` noisy 16 x 16 pictures of digits with their labels."""

    def __init__(self, count, seed, transform=None):
        shapes = [np.array([[int(c) for c in row] for row in digit.split()])
                  for digit in FONT.split("|")]
        rng = np.random.default_rng(seed)
        self.targets = rng.integers(0, 10, count)
        self.data = 0.15 * rng.standard_normal((count, 1, 16, 16))
        for image, label in zip(self.data, self.targets, strict=False):
            top, left = rng.integers(3, 7), rng.integers(4, 8)
            image[0, top:top + 7, left:left + 5] += shapes[label]
        self.transform = transform

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        image = torch.tensor(self.data[index], dtype=torch.get_default_dtype())
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.targets[index])


class Shuffled(Sampler):
    """A new order every epoch, from NumPy, so that every library sees the same one."""

    def __init__(self, length, seed):
        self.length = length
        self.rng = np.random.default_rng(seed)

    def __iter__(self):
        return iter(self.rng.permutation(self.length).tolist())

    def __len__(self):
        return self.length


class Net(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, 1)
        self.conv2 = nn.Conv2d(8, 16, 3, 1)
        self.dropout1 = nn.Dropout(dropout)
        self.dropout2 = nn.Dropout(2 * dropout)
        self.fc1 = nn.Linear(16 * 6 * 6, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def train(args, model, device, loader, optimizer, epoch):
    model.train()
    losses = []
    for batch, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if batch % args.log_interval == 0:
            print(f"epoch {epoch} [{batch * len(data)}/{len(loader.dataset)} "
                  f"({100. * batch / len(loader):.0f}%)]  loss {loss.item():.6f}")
    return losses


def test(model, device, loader):
    model.eval()
    total = correct = 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            total += F.nll_loss(output, target, reduction="sum").item()
            prediction = output.argmax(dim=1, keepdim=True)
            correct += prediction.eq(target.view_as(prediction)).sum().item()
    count = len(loader.dataset)
    print(f"test: average loss {total / count:.4f}, accuracy {correct}/{count}")
    return correct / count


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--lr", type=float, default=1.0)
    parser.add_argument("--gamma", type=float, default=0.85)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-accel", action="store_true")
    parser.add_argument("--log-interval", type=int, default=8)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)

    use_accel = not args.no_accel and torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
    torch.manual_seed(args.seed)

    def normalize(image):
        return (image - 0.1307) / 0.3081

    options = {"batch_size": args.batch_size}
    if use_accel:
        options.update(num_workers=1, pin_memory=True)
    training = Digits(args.images, 0, normalize)
    train_loader = DataLoader(training, sampler=Shuffled(len(training), 0), **options)
    test_loader = DataLoader(Digits(256, 1, normalize), batch_size=256)

    model = Net(args.dropout).to(device)
    if args.write_init:
        torch.save(model.state_dict(), args.write_init)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = torch.optim.Adadelta(model.parameters(), lr=args.lr)
    scheduler = StepLR(optimizer, step_size=1, gamma=args.gamma)
    losses = []
    for epoch in range(1, args.epochs + 1):
        losses += train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
        scheduler.step()
    return losses


if __name__ == "__main__":
    main()
