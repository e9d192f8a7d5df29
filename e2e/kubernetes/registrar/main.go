// Registers a CSI driver with kubelet, for a driver that does not do so itself.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

type driver struct {
	registration.UnimplementedRegistrationServer
	name, endpoint string
}

func (d driver) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: d.name, Endpoint: d.endpoint, SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (d driver) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		log.Fatalf("kubelet refuses %s: %s", d.name, status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	var d driver
	flag.StringVar(&d.name, "name", "", "the name of the driver")
	flag.StringVar(&d.endpoint, "endpoint", "", "the path of its socket")
	socket := flag.String("socket", "", "the path of the socket that kubelet watches for")
	flag.Parse()
	os.Remove(*socket)
	listener, err := net.Listen("unix", *socket)
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, d)
	log.Fatal(server.Serve(listener))
}
