package main

import (
	"context"
	"time"

	"github.com/samber/lo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	fakeprovider "sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/dynamicresources/deviceallocation"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/events"
	"sigs.k8s.io/karpenter/pkg/state/cost"
	"sigs.k8s.io/karpenter/pkg/state/virtualpods"
	testv1alpha1 "sigs.k8s.io/karpenter/pkg/test/v1alpha1"
)

// A command of Karpenter's disruption controller, the first that any of its methods for price has.
type command struct {
	Method     string              `json:"method"` // "" = there is none
	Delete     []string            `json:"delete"` // Nodes
	Launch     []launched          `json:"launch"`
	Moved      map[string][]string `json:"moved"` // pods that go to Nodes, by Node
	Seconds    float64             `json:"seconds"`
	CPUSeconds float64             `json:"cpuSeconds"`
	PeakMB     int64               `json:"peakMB"`
}

// A replacement, as what the AWS provider would launch: the cheapest offering.
type launched struct {
	NodePool     string   `json:"nodePool"`
	InstanceType string   `json:"instanceType"`
	Zone         string   `json:"zone"`
	CapacityType string   `json:"capacityType"`
	Price        float64  `json:"price"`
	Pods         []string `json:"pods"`
}

// catalogProvider offers the catalog's types to every NodePool.
type catalogProvider struct {
	*fakeprovider.CloudProvider
	types []*cloudprovider.InstanceType
}

func (p catalogProvider) GetInstanceTypes(context.Context, *karpv1.NodePool) ([]*cloudprovider.InstanceType, error) {
	return p.types, nil
}

// unchecked takes each command for valid: the fifteen seconds that the controller waits change nothing here.
type unchecked struct{}

func (unchecked) Validate(_ context.Context, found disruption.Command, _ time.Duration) (disruption.Command, error) {
	return found, nil
}

// disrupt asks emptiness, then consolidation of several nodes, then of single ones, as the controller does. The
// methods have the controller's own time limits.
func (w *world) disrupt() command {
	w.publish()
	started, worked := time.Now(), used()
	provider := catalogProvider{fakeprovider.NewCloudProvider(), w.types[w.pools[0].Name]}
	recorder := events.NewRecorder(&record.FakeRecorder{})
	now := clock.RealClock{}
	provisioner := provisioning.NewProvisioner(w.client, recorder, provider, w.cluster, now,
		deviceallocation.NewController(w.client), virtualpods.NewVirtualPodCache(w.client))
	costs := cost.NewClusterCost(w.ctx, provider, w.client)
	for _, pool := range w.pools {
		costs.UpdateOfferings(w.ctx, pool, provider.types)
	}
	queue := disruption.NewQueue(fake.NewFakeClient(), recorder, w.cluster, now, provisioner)
	shared := disruption.MakeConsolidation(now, w.cluster, w.client, provisioner, provider, recorder, queue)
	valid := disruption.WithValidator(unchecked{})
	out := command{Delete: []string{}, Launch: []launched{}, Moved: map[string][]string{}}
	for _, method := range []disruption.Method{
		disruption.NewEmptiness(shared, valid),
		disruption.NewMultiNodeConsolidation(shared, valid),
		disruption.NewSingleNodeConsolidation(shared, valid),
	} {
		candidates, totals, err := disruption.GetCandidatesWithTotals(w.ctx, w.cluster, w.client, recorder, now, provider,
			method.ShouldDisrupt, method.Class(), queue, costs)
		must(0, err)
		if setter, ok := method.(disruption.NodePoolTotalsSetter); ok {
			setter.SetNodePoolTotals(totals)
		}
		if len(candidates) == 0 {
			continue
		}
		budgets := must(disruption.BuildDisruptionBudgetMapping(w.ctx, w.cluster, now, w.client, provider, recorder, method.Reason()))
		commands := must(method.ComputeCommands(w.ctx, budgets, candidates...))
		commands = lo.Filter(commands, func(c disruption.Command, _ int) bool { return c.Decision() != disruption.NoOpDecision })
		if len(commands) > 0 {
			out.tell(string(method.ConsolidationType()), commands[0])
			break
		}
	}
	out.Seconds, out.CPUSeconds, out.PeakMB = time.Since(started).Seconds(), used()-worked, peakMB()
	return out
}

// publish puts NodePools, Ready and of a class that the provider knows, and DaemonSets where the controller lists them.
func (w *world) publish() {
	objects := []client.Object{}
	for _, pool := range w.pools {
		pool.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{
			Group: testv1alpha1.Group, Kind: "TestNodeClass", Name: "default"}
		for _, condition := range []string{karpv1.ConditionTypeValidationSucceeded, karpv1.ConditionTypeNodeClassReady} {
			pool.StatusConditions().SetTrue(condition)
		}
		objects = append(objects, pool)
	}
	for _, set := range w.sets {
		objects = append(objects, set)
	}
	w.client.Client = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
}

func (c *command) tell(method string, found disruption.Command) {
	c.Method, c.Delete = method, found.SourceNodeNames()
	for _, replacement := range found.Replacements {
		c.Launch = append(c.Launch, cheapest(replacement.NodeClaim))
	}
	for _, node := range found.Results.ExistingNodes {
		if len(node.Pods) > 0 {
			c.Moved[node.Name()] = names(node.Pods)
		}
	}
}

func cheapest(claim *scheduling.NodeClaim) launched {
	out := launched{NodePool: claim.NodePoolName, Price: launchPrice(claim), Pods: names(claim.Pods)}
	for _, it := range claim.InstanceTypeOptions {
		for _, offering := range it.Offerings.Available().Compatible(claim.Requirements) {
			if offering.Price == out.Price {
				out.InstanceType, out.Zone, out.CapacityType = it.Name, offering.Zone(), offering.CapacityType()
				return out
			}
		}
	}
	panic("no offering has the price of " + claim.Name)
}

func names(pods []*corev1.Pod) []string {
	return lo.Map(pods, func(pod *corev1.Pod, _ int) string { return pod.Namespace + "/" + pod.Name })
}
