"""What a team sets up around its workloads: quotas, queues, device plugins, exporters, alerts.

None of these objects comes to the webhooks. They are read by ``gpugate review`` alone, and what is found there is said with
the rule id :data:`gpugate.policies.setup.catalogue.RULE`: as a refusal where the object can never do what it is for, as a
warning where it does something else than it seems to.
"""
