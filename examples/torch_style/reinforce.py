"""REINFORCE with a learned baseline (actor-critic) on a cart-pole written in Python."""
import argparse
import math
from collections import deque, namedtuple

import numpy as np

import adjoint as torch
import adjoint.nn as nn
import adjoint.nn.functional as F
import adjoint.optim as optim

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class CartPole:
    """A pole on a cart (A. Barto, R. Sutton, C. Anderson, 1983), Euler steps of 0.02 s."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.state = self.rng.uniform(-0.05, 0.05, 4)
        return self.state

    def step(self, action):
        x, v, angle, spin = self.state
        force = 10.0 if action == 1 else -10.0
        sin, cos = math.sin(angle), math.cos(angle)
        temp = (force + 0.05 * spin**2 * sin) / 1.1
        turn = (9.8 * sin - cos * temp) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
        push = temp - 0.05 * turn * cos / 1.1
        self.state = np.array([x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin,
                               spin + 0.02 * turn])
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * math.pi / 180
        return self.state, 1.0, done


class Policy(nn.Module):
    """Actor and critic on one hidden layer."""

    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 64)
        self.action_head = nn.Linear(64, 2)
        self.value_head = nn.Linear(64, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def select_action(model, state, rng):
    state = torch.from_numpy(state).to(torch.get_default_dtype())
    probs, state_value = model(state)
    action = int(rng.random() >= probs[0].item())
    model.saved_actions.append(SavedAction(torch.log(probs)[action], state_value))
    return action


def finish_episode(model, optimizer, gamma):
    R, returns = 0, deque()
    for r in model.rewards[::-1]:
        R = r + gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns, dtype=torch.get_default_dtype())
    returns = (returns - returns.mean()) / (returns.std() + np.finfo(np.float32).eps.item())
    policy_losses, value_losses = [], []
    for (log_prob, value), R in zip(model.saved_actions, returns, strict=False):
        advantage = R - value.item()
        policy_losses.append(-log_prob * advantage)
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss.item()


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--episodes", type=int, default=60)
    parser.add_argument("--longest", type=int, default=200)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(543)
    env, rng = CartPole(0), np.random.default_rng(1)
    model = Policy()
    if args.write_init:
        torch.save(model.state_dict(), args.write_init)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    running_reward, losses = 10, []
    for i_episode in range(args.episodes):
        state, ep_reward = env.reset(), 0
        for _ in range(args.longest):
            state, reward, done = env.step(select_action(model, state, rng))
            model.rewards.append(reward)
            ep_reward += reward
            if done:
                break
        running_reward = 0.05 * ep_reward + (1 - 0.05) * running_reward
        losses.append(finish_episode(model, optimizer, args.gamma))
        if i_episode % 10 == 0:
            print(f"episode {i_episode}\tlast reward: {ep_reward:.2f}\t"
                  f"average reward: {running_reward:.2f}")
    return losses


if __name__ == "__main__":
    main()
