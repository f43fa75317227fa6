package main

import (
	"encoding/json"
	"math"
	"os"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	karpsched "sigs.k8s.io/karpenter/pkg/scheduling"
)

// A catalog file of tests/cases, see its FORMAT.md.
type catalogFile struct {
	InstanceTypes []struct {
		Name         string
		Requirements []struct {
			Key      string
			Operator corev1.NodeSelectorOperator
			Values   []string
		}
		Capacity  corev1.ResourceList
		Overhead  struct{ KubeReserved, SystemReserved, EvictionThreshold corev1.ResourceList }
		Offerings []struct {
			Requirements map[string]string
			Price        float64
			Available    *bool
		}
	}
}

const reservationLabel = "karpenter.k8s.aws/capacity-reservation-id"

// readCatalog makes the instance types, without offerings of the types that are sold out.
func readCatalog(path string, soldOut []string) []*cloudprovider.InstanceType {
	var file catalogFile
	must(0, json.Unmarshal(must(os.ReadFile(path)), &file))
	gone := map[string]bool{}
	for _, name := range soldOut {
		gone[name] = true
	}
	cloudprovider.ReservationIDLabel = reservationLabel
	var found []*cloudprovider.InstanceType
	for _, given := range file.InstanceTypes {
		made := &cloudprovider.InstanceType{Name: given.Name, Capacity: given.Capacity, Requirements: karpsched.NewRequirements(),
			Overhead: &cloudprovider.InstanceTypeOverhead{KubeReserved: given.Overhead.KubeReserved,
				SystemReserved: given.Overhead.SystemReserved, EvictionThreshold: given.Overhead.EvictionThreshold}}
		for _, one := range given.Requirements {
			karpv1.WellKnownLabels.Insert(one.Key)
			made.Requirements.Add(karpsched.NewRequirement(one.Key, one.Operator, one.Values...))
		}
		for _, one := range given.Offerings {
			offering := &cloudprovider.Offering{Requirements: karpsched.NewRequirements(), Price: one.Price,
				Available: (one.Available == nil || *one.Available) && !gone[given.Name]}
			for key, value := range one.Requirements {
				offering.Requirements.Add(karpsched.NewRequirement(key, corev1.NodeSelectorOpIn, value))
			}
			made.Offerings = append(made.Offerings, offering)
		}
		for _, key := range []string{corev1.LabelTopologyZone, karpv1.CapacityTypeLabelKey} {
			if !made.Requirements.Has(key) {
				made.Requirements.Add(karpsched.NewRequirement(key, corev1.NodeSelectorOpIn, offered(made, key)...))
			}
		}
		found = append(found, made)
	}
	return found
}

func offered(it *cloudprovider.InstanceType, key string) []string {
	seen := map[string]bool{}
	var values []string
	for _, offering := range it.Offerings {
		if value := offering.Requirements.Get(key).Any(); !seen[value] {
			seen[value] = true
			values = append(values, value)
		}
	}
	return values
}

// launchPrice is what the AWS provider would pay: of the offerings that are compatible and available the cheapest,
// metal and accelerators only where nothing else is left.
func launchPrice(claim *scheduling.NodeClaim) float64 {
	var plain, exotic []float64
	for _, it := range claim.InstanceTypeOptions {
		price := math.Inf(1)
		for _, offering := range it.Offerings.Available().Compatible(claim.Requirements) {
			price = min(price, offering.Price)
		}
		if isExotic(it) {
			exotic = append(exotic, price)
		} else {
			plain = append(plain, price)
		}
	}
	for _, prices := range [][]float64{plain, exotic} {
		sort.Float64s(prices)
		if len(prices) > 0 && !math.IsInf(prices[0], 1) {
			return prices[0]
		}
	}
	panic("a claim that nothing can be launched for: " + claim.Name)
}

func isExotic(it *cloudprovider.InstanceType) bool {
	_, size, _ := strings.Cut(it.Name, ".")
	for _, key := range []string{"karpenter.k8s.aws/instance-gpu-count", "karpenter.k8s.aws/instance-accelerator-count"} {
		if it.Requirements.Has(key) && it.Requirements.Get(key).Operator() == corev1.NodeSelectorOpIn {
			return true
		}
	}
	return strings.HasPrefix(size, "metal")
}
