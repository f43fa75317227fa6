package main

import (
	"context"
	"encoding/json"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	fakeprovider "sigs.k8s.io/karpenter/pkg/cloudprovider/fake"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
)

type problem struct {
	Catalog    string
	SoldOut    []string
	NodePools  []*karpv1.NodePool
	DaemonSets []*appsv1.DaemonSet
	Nodes      []*corev1.Node
	NodeClaims []*karpv1.NodeClaim
	Pods       []*corev1.Pod
}

// load reads a problem into Karpenter's state, as its controllers would have done from watches.
func load(path string) *world {
	var given problem
	must(0, json.Unmarshal(must(os.ReadFile(path)), &given))
	ctx := settings()
	memory := &memory{Client: fake.NewFakeClient(), nodes: map[string]*corev1.Node{}, onNode: map[string][]*corev1.Pod{}}
	w := &world{ctx: ctx, client: memory, pools: given.NodePools, types: map[string][]*cloudprovider.InstanceType{},
		cluster: state.NewCluster(clock.RealClock{}, memory, fakeprovider.NewCloudProvider())}
	types := readCatalog(given.Catalog, given.SoldOut)
	for _, pool := range given.NodePools {
		w.types[pool.Name] = types
	}
	w.sets = given.DaemonSets
	for _, set := range given.DaemonSets {
		w.daemons = append(w.daemons, &corev1.Pod{ObjectMeta: set.Spec.Template.ObjectMeta, Spec: set.Spec.Template.Spec})
	}
	for _, pod := range given.Pods {
		if pod.Spec.NodeName == "" {
			w.pending = append(w.pending, pod)
			continue
		}
		memory.pods = append(memory.pods, pod)
		memory.onNode[pod.Spec.NodeName] = append(memory.onNode[pod.Spec.NodeName], pod)
	}
	for _, claim := range given.NodeClaims {
		w.cluster.UpdateNodeClaim(claim)
	}
	for _, node := range given.Nodes {
		memory.nodes[node.Name] = node
		must(0, w.cluster.UpdateNode(ctx, node))
	}
	for _, pod := range memory.pods {
		must(0, w.cluster.UpdatePod(ctx, pod))
	}
	return w
}

// memory answers what the scheduler asks of the API server, like the controller's informer cache.
type memory struct {
	client.Client
	pods   []*corev1.Pod
	onNode map[string][]*corev1.Pod
	nodes  map[string]*corev1.Node
}

func (m *memory) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	found, ok := list.(*corev1.PodList)
	if !ok {
		return m.Client.List(ctx, list, opts...)
	}
	asked := (&client.ListOptions{}).ApplyOptions(opts)
	among := m.pods
	if asked.FieldSelector != nil {
		name, _ := asked.FieldSelector.RequiresExactMatch("spec.nodeName")
		among = m.onNode[name]
	}
	found.Items = nil
	for _, pod := range among {
		wanted := asked.LabelSelector == nil || asked.LabelSelector.Matches(labels.Set(pod.Labels))
		if wanted && (asked.Namespace == "" || asked.Namespace == pod.Namespace) {
			found.Items = append(found.Items, *pod.DeepCopy())
		}
	}
	return nil
}

func (m *memory) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	switch object := into.(type) {
	case *corev1.Node:
		if node, ok := m.nodes[key.Name]; ok {
			node.DeepCopyInto(object)
			return nil
		}
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
	case *storagev1.CSINode:
		return apierrors.NewNotFound(schema.GroupResource{Group: "storage.k8s.io", Resource: "csinodes"}, key.Name)
	}
	return m.Client.Get(ctx, key, into, opts...)
}
