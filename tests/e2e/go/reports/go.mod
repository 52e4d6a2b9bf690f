module gpugate.io/tests/e2e/reports

go 1.26.0

require (
	github.com/kyverno/kyverno v1.19.1
	github.com/openreports/reports-api v0.2.1
)
