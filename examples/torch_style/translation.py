"""nn.Transformer learns to reverse sequences: padding masks, a causal mask, greedy decoding."""
import argparse
import math

import numpy as np

import adjoint as torch
import adjoint.nn as nn
from adjoint.nn import Transformer
from adjoint.nn.utils.rnn import pad_sequence
from adjoint.utils.data import DataLoader

PAD, BOS, EOS = 0, 1, 2


class PositionalEncoding(nn.Module):
    def __init__(self, emb_size, dropout, maxlen=64):
        super().__init__()
        den = torch.exp(-torch.arange(0, emb_size, 2) * math.log(10000) / emb_size)
        pos = torch.arange(0, maxlen).reshape(maxlen, 1)
        pos_embedding = torch.zeros((maxlen, emb_size))
        pos_embedding[:, 0::2] = torch.sin(pos * den)
        pos_embedding[:, 1::2] = torch.cos(pos * den)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("pos_embedding", pos_embedding.unsqueeze(-2))

    def forward(self, token_embedding):
        return self.dropout(token_embedding + self.pos_embedding[:token_embedding.size(0), :])


class Seq2Seq(nn.Module):
    def __init__(self, vocab, emb_size=32, nhead=4):
        super().__init__()
        self.transformer = Transformer(d_model=emb_size, nhead=nhead, num_encoder_layers=1,
                                       num_decoder_layers=1, dim_feedforward=64, dropout=0.0)
        self.generator = nn.Linear(emb_size, vocab)
        self.embedding = nn.Embedding(vocab, emb_size, padding_idx=PAD)
        self.positional_encoding = PositionalEncoding(emb_size, dropout=0.0)
        self.scale = math.sqrt(emb_size)
        for p in self.transformer.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def embed(self, tokens):
        return self.positional_encoding(self.embedding(tokens.long()) * self.scale)

    def forward(self, src, trg):
        trg_mask = self.transformer.generate_square_subsequent_mask(trg.size(0))
        outs = self.transformer(
            self.embed(src), self.embed(trg), tgt_mask=trg_mask,
            src_key_padding_mask=(src == PAD).transpose(0, 1),
            tgt_key_padding_mask=torch.zeros(trg.shape).where(trg != PAD, -math.inf).t(),
            memory_key_padding_mask=(src == PAD).transpose(0, 1))
        return self.generator(outs)


def collate_fn(batch):
    src = [torch.tensor([*s, EOS]) for s in batch]
    tgt = [torch.tensor([BOS, *s[::-1], EOS]) for s in batch]
    return pad_sequence(src, padding_value=PAD), pad_sequence(tgt, padding_value=PAD)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--init", help="start from the weights in this file")
    parser.add_argument("--write-init", help="write the starting weights to this file")
    args = parser.parse_args(argv)
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    sentences = [rng.integers(3, 13, rng.integers(2, 6)).tolist() for _ in range(640)]
    loader = DataLoader(sentences, batch_size=64, collate_fn=collate_fn)
    model = Seq2Seq(13)
    if args.write_init:
        torch.save(model.state_dict(), args.write_init)
    if args.init:
        model.load_state_dict(torch.load(args.init))
    loss_fn = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for epoch in range(1, args.epochs + 1):
        model.train()
        for src, tgt in loader:
            logits = model(src, tgt[:-1, :])
            optimizer.zero_grad()
            tgt_out = tgt[1:, :]
            loss = loss_fn(logits.reshape(-1, logits.shape[-1]), tgt_out.reshape(-1))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(f"epoch {epoch}: train loss {losses[-1]:.3f}")
    model.eval()
    src, _ = collate_fn([[3, 4, 5, 6]])
    ys = torch.ones(1, 1).fill_(BOS).type(torch.long)
    with torch.no_grad():
        for _ in range(6):
            next_word = model(src, ys)[-1, 0].argmax().item()
            ys = torch.cat([ys, torch.ones(1, 1).type_as(src.data).fill_(next_word)], dim=0)
            if next_word == EOS:
                break
    print("3 4 5 6 ->", *ys.flatten().tolist()[1:])
    return losses


if __name__ == "__main__":
    main()
