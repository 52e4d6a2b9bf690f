module gpugate.io/tests/e2e/cluster

go 1.26.0

require (
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/karpenter v1.9.0
)
