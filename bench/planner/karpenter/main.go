// Command karpenter runs the real Karpenter scheduler on one problem and prints what it took and what it would cost; or
// the real disruption methods on a cluster, and prints the command that comes first.
//
// A problem is the JSON that bench/planner writes: Kubernetes objects by kind, and the name of an instance catalog.
// Timed is what a controller does for a batch whose pods and nodes it has in memory: a copy of the nodes, NewTopology,
// NewScheduler and Solve.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	nodepoolutils "sigs.k8s.io/karpenter/pkg/utils/nodepool"
)

type outcome struct {
	Seconds     float64 `json:"seconds"`
	CPUSeconds  float64 `json:"cpuSeconds"`
	Price       float64 `json:"price"`
	Nodes       int     `json:"nodes"`
	Placed      int     `json:"placed"`
	SmallPlaced int     `json:"smallPlaced"`
	Pods        int     `json:"pods"`
	PeakMB      int64   `json:"peakMB"`
}

func main() {
	path := flag.String("problem", "", "problem to solve")
	warm := flag.String("warm", "", "problem solved once before, untimed")
	limit := flag.Duration("limit", 0, "deadline of Solve, as the controller's 60s; 0 = none")
	disrupt := flag.Bool("disrupt", false, "print the command that the disruption controller has next instead")
	flag.Parse()
	log.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	if *disrupt {
		must(0, json.NewEncoder(os.Stdout).Encode(load(*path).disrupt()))
		return
	}
	if *warm != "" {
		load(*warm).solve(0)
	}
	loaded := load(*path)
	runtime.GC()
	must(0, json.NewEncoder(os.Stdout).Encode(loaded.solve(*limit)))
}

// world is a problem as Karpenter's own state holds it.
type world struct {
	ctx     context.Context
	client  *memory
	cluster *state.Cluster
	pools   []*karpv1.NodePool
	types   map[string][]*cloudprovider.InstanceType
	daemons []*corev1.Pod
	sets    []*appsv1.DaemonSet
	pending []*corev1.Pod
}

// settings are the controller's defaults: one core, so one worker.
func settings() context.Context {
	ctx := injection.WithControllerName(context.Background(), "provisioner")
	return options.ToContext(ctx, &options.Options{
		PreferencePolicy:  options.PreferencePolicyRespect,
		MinValuesPolicy:   options.MinValuesPolicyStrict,
		IgnoreDRARequests: true,
		CPURequests:       1000,
		FeatureGates:      options.FeatureGates{ReservedCapacity: true, SpotToSpotConsolidation: true},
	})
}

func (w *world) solve(limit time.Duration) outcome {
	opts := []scheduling.Options{
		scheduling.NumConcurrentReconciles(1),
		scheduling.MinValuesPolicy(options.MinValuesPolicyStrict),
		scheduling.DisableReservedCapacityFallback,
	}
	nodepoolutils.OrderByWeight(w.pools)
	started, worked := time.Now(), used()
	nodes := w.cluster.DeepCopyNodes().Active()
	topology := must(scheduling.NewTopology(w.ctx, w.client, w.cluster, nodes, w.pools, w.types, w.pending, opts...))
	recorder := events.NewRecorder(&record.FakeRecorder{})
	scheduler := scheduling.NewScheduler(w.ctx, w.client, w.pools, w.cluster, nodes, topology, w.types, w.daemons,
		recorder, clock.RealClock{}, nil, nil, opts...)
	ctx, cancel := w.ctx, context.CancelFunc(func() {})
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	// An error is the deadline; what was placed until then stands.
	results, _ := scheduler.Solve(ctx, w.pending)
	cancel()
	spent, burnt := time.Since(started), used()-worked
	out := w.told(results)
	out.Seconds, out.CPUSeconds = spent.Seconds(), burnt
	return out
}

// used is the cpu time of all threads so far, in seconds.
func used() float64 {
	var usage syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func (w *world) told(results scheduling.Results) outcome {
	out := outcome{Nodes: len(results.NewNodeClaims), Pods: len(w.pending)}
	count := func(pods []*corev1.Pod) {
		out.Placed += len(pods)
		for _, pod := range pods {
			if pod.Labels["size"] == "small" {
				out.SmallPlaced++
			}
		}
	}
	for _, node := range results.ExistingNodes {
		count(node.Pods)
	}
	for _, claim := range results.NewNodeClaims {
		count(claim.Pods)
		out.Price += launchPrice(claim)
	}
	out.PeakMB = peakMB()
	return out
}

func peakMB() int64 {
	var usage syscall.Rusage
	must(0, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return usage.Maxrss / 1024
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
