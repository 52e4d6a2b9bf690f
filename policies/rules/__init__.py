"""The rules, one module each; :mod:`gpugate.policies.catalogue` puts them in order."""
