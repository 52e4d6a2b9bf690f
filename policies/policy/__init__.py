"""GPUPolicy: its model, how it binds rules, its CRD and the rule reference."""
