package entity

import workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"

// TierNames has the names of tiers in the API, in AGENT.md and in the configuration.
var TierNames = map[workspacev1.Tier]string{
	workspacev1.Tier_TIER_FRONTIER:           "frontier",
	workspacev1.Tier_TIER_BALANCED:           "balanced",
	workspacev1.Tier_TIER_OPENAI_FRONTIER:    "openai-frontier",
	workspacev1.Tier_TIER_OPENAI_MAX:         "openai-max",
	workspacev1.Tier_TIER_ANTHROPIC_FRONTIER: "anthropic-frontier",
	workspacev1.Tier_TIER_ANTHROPIC_MAX:      "anthropic-max",
}

// ParseTier returns the tier with a name. Errors: invalid_request.
func ParseTier(name string) (workspacev1.Tier, error) {
	for tier, known := range TierNames {
		if known == name {
			return tier, nil
		}
	}
	return 0, errTierName
}

var errTierName = Errorf(InvalidRequest, "tier must be one of frontier, balanced, openai-frontier, openai-max, anthropic-frontier, anthropic-max")
