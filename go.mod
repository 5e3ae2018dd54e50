module github.com/gswarm/gswarm

go 1.25.0

require golang.org/x/sys v0.38.0

require (
	github.com/NVIDIA/go-nvml v0.13.1-0 // indirect
	github.com/apache/arrow/go/v15 v15.0.2 // indirect
	github.com/google/go-cmp v0.7.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/klauspost/compress v1.18.2 // indirect
	github.com/prometheus/procfs v0.19.2 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
	github.com/spf13/cobra v1.10.2 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
