"""Knowledge distillation: a small network learns from a large one's soft answers (G. Hinton,
O. Vinyals, J. Dean, 2015)."""
import argparse
import copy

import numpy as np

import adjoint as torch
import adjoint.nn as nn
import adjoint.nn.functional as F
from adjoint import optim
from adjoint.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from adjoint.utils.data import DataLoader, TensorDataset, random_split


def spirals(count, seed):
    """Points on three arms of a spiral."""
    rng = np.random.default_rng(seed)
    arm, along = rng.integers(0, 3, count), rng.uniform(0.1, 1, count)
    angle = 4 * along + 2 * np.pi * arm / 3 + 0.15 * rng.standard_normal(count)
    points = np.stack([along * np.cos(angle), along * np.sin(angle)], 1)
    return torch.tensor(points, dtype=torch.get_default_dtype()), torch.from_numpy(arm)


def network(width, depth):
    layers = [nn.Linear(2, width), nn.ELU()]
    for _ in range(depth - 1):
        layers += [nn.Linear(width, width), nn.ELU()]
    return nn.Sequential(*layers, nn.Linear(width, 3))


def train_teacher(model, loader, epochs):
    optimizer = optim.AdamW(model.parameters(), lr=5e-3)
    scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-2,
                                              total_steps=epochs * len(loader))
    losses = []
    for _ in range(epochs):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
    return losses


def train_student(teacher, student, loader, epochs, T, soft_weight):
    teacher.eval()
    student.train()
    average = AveragedModel(student, multi_avg_fn=get_ema_multi_avg_fn(0.95))
    optimizer = optim.SGD(student.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    ce_loss = nn.CrossEntropyLoss()
    losses = []
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            with torch.no_grad():
                teacher_logits = teacher(inputs)
            student_logits = student(inputs)
            soft_targets = nn.functional.softmax(teacher_logits / T, dim=-1)
            soft_prob = nn.functional.log_softmax(student_logits / T, dim=-1)
            soft_targets_loss = nn.KLDivLoss(reduction="batchmean")(soft_prob, soft_targets) * T**2
            loss = (soft_weight * soft_targets_loss
                    + (1 - soft_weight) * ce_loss(student_logits, labels))
            loss.backward()
            optimizer.step()
            average.update_parameters(student)
            losses.append(loss.item())
        scheduler.step()
    return losses, average


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(-1) == y).float().mean().item()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--temperature", type=float, default=2.0)
    parser.add_argument("--soft-weight", type=float, default=0.7)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(42)
    x, y = spirals(600, 0)
    train_set, _ = random_split(TensorDataset(x, y), [len(x), 0])
    loader = DataLoader([(x[i], y[i]) for i in range(len(train_set))], batch_size=60)
    test_x, test_y = spirals(300, 1)
    teacher, student = network(48, 3), network(12, 1)
    if args.write_init:
        torch.save((teacher.state_dict(), student.state_dict()), args.write_init)
    if args.init:
        for model, state in zip((teacher, student), torch.load(args.init), strict=False):
            model.load_state_dict(state)
    alone = copy.deepcopy(student)
    losses = train_teacher(teacher, loader, args.epochs)
    more, average = train_student(teacher, student, loader, args.epochs, args.temperature,
                                  args.soft_weight)
    losses += more
    losses += train_student(teacher, alone, loader, args.epochs, args.temperature, 0.0)[0]
    for name, model in (("teacher", teacher), ("student", student), ("its average", average),
                        ("student alone", alone)):
        count = sum(p.numel() for p in model.parameters())
        print(f"{name}: {count} parameters, accuracy {accuracy(model, test_x, test_y):.3f}")
    return losses


if __name__ == "__main__":
    main()
