"""The real Argo CD and the real Flux beside a real control plane, with gpugate at its door."""
