// One binary that holds a Kubernetes control plane for tests. The name it is called by (a link) or else its
// first argument picks the component.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Only the chosen command may be constructed: each registers the process's signal handler.
var components = map[string]func() *cobra.Command{
	"etcd":                    nil, // not a cobra command
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
}

func main() {
	if _, known := components[filepath.Base(os.Args[0])]; !known && len(os.Args) > 1 {
		os.Args = os.Args[1:]
	}
	name := filepath.Base(os.Args[0])
	if construct, known := components[name]; known {
		os.Args[0] = name
		if name == "etcd" {
			etcdmain.Main(os.Args)
			return
		}
		os.Exit(cli.Run(construct()))
	}
	fmt.Fprintln(os.Stderr, "usage: controlplane etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl [flags]")
	os.Exit(2)
}
