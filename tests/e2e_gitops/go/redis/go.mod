module gpugate.io/tests/e2e_gitops/redis

go 1.26.0

require github.com/alicebob/miniredis/v2 v2.38.0

require github.com/yuin/gopher-lua v1.1.1 // indirect
