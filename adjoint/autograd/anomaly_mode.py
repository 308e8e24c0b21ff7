"""PyTorch's module name for `autograd.anomaly`."""
from adjoint.autograd.anomaly import detect_anomaly as detect_anomaly
from adjoint.autograd.anomaly import set_detect_anomaly as set_detect_anomaly
