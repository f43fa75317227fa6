// Package karpentertests fixes the version of Karpenter's public end-to-end tests, and of what they need.
package karpentertests

import (
	_ "sigs.k8s.io/karpenter/test/pkg/environment/common"
)
