"""The decision: a lens over any workload kind, the rules, the engine and cluster facts.

Pure: nothing here reads a file, a clock or the network, logs, or counts. The running
programs in :mod:`gpugate.webhook` feed it and carry out what it decides.
"""
