"""`torch.cuda.random`: seeds and states of generators that are not here."""
from __future__ import annotations

from adjoint.cuda import get_rng_state as get_rng_state
from adjoint.cuda import get_rng_state_all as get_rng_state_all
from adjoint.cuda import manual_seed as manual_seed
from adjoint.cuda import manual_seed_all as manual_seed_all
from adjoint.cuda import seed as seed
from adjoint.cuda import seed_all as seed_all
from adjoint.cuda import set_rng_state as set_rng_state
from adjoint.cuda import set_rng_state_all as set_rng_state_all
