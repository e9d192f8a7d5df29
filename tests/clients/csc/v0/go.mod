module csc

go 1.21

require (
	github.com/rexray/gocsi v0.4.0
	github.com/container-storage-interface/spec v0.2.0
	github.com/golang/protobuf v1.3.1
	github.com/sirupsen/logrus v1.2.0
	github.com/spf13/cobra v0.0.1
	github.com/spf13/pflag v1.0.0
	google.golang.org/grpc v1.19.0
)
