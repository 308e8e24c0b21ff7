"""Looking into a program: `explain` walks through its tape, `draw` pictures its graph, `record`
keeps everything that a run does."""
from __future__ import annotations

from adjoint.inspect.explain import Explanation as Explanation
from adjoint.inspect.explain import explain as explain
from adjoint.inspect.pictures import Picture as Picture
from adjoint.inspect.pictures import draw as draw
from adjoint.inspect.record import record as record
from adjoint.inspect.walk import Event as Event
from adjoint.inspect.walk import Walk as Walk
