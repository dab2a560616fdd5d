package api

import (
	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// StatusNames has the API's names of the statuses of workspaces. The tables below name other values.
var StatusNames = map[workspacev1.Status]string{
	workspacev1.Status_STATUS_PROVISIONING: "provisioning",
	workspacev1.Status_STATUS_ACTIVE:       "active",
	workspacev1.Status_STATUS_UNHEALTHY:    "unhealthy",
	workspacev1.Status_STATUS_ARCHIVED:     "archived",
	workspacev1.Status_STATUS_RETIRED:      "retired",
	workspacev1.Status_STATUS_DELETED:      "deleted",
}

var roleNames = entity.RoleNames

var tierNames = entity.TierNames

var anchorKindNames = map[workspacev1.AnchorKind]string{
	workspacev1.AnchorKind_ANCHOR_KIND_APP:         "app",
	workspacev1.AnchorKind_ANCHOR_KIND_AGENT:       "agent",
	workspacev1.AnchorKind_ANCHOR_KIND_PUBLISH:     "publish",
	workspacev1.AnchorKind_ANCHOR_KIND_SHARE_ROOT:  "share-root",
	workspacev1.AnchorKind_ANCHOR_KIND_SHARE_MOUNT: "share-mount",
}

var anchorStateNames = map[workspacev1.AnchorState]string{
	workspacev1.AnchorState_ANCHOR_STATE_ACTIVE:   "active",
	workspacev1.AnchorState_ANCHOR_STATE_BROKEN:   "broken",
	workspacev1.AnchorState_ANCHOR_STATE_ORPHANED: "orphaned",
}

var credentialNames = map[wirev1.CredentialKind]string{
	wirev1.CredentialKind_CREDENTIAL_KIND_USER:            "user",
	wirev1.CredentialKind_CREDENTIAL_KIND_LIMITED_KEY:     "user",
	wirev1.CredentialKind_CREDENTIAL_KIND_BROWSER_SESSION: "browser_session",
	wirev1.CredentialKind_CREDENTIAL_KIND_OAUTH:           "oauth",
	wirev1.CredentialKind_CREDENTIAL_KIND_APP:             "app",
	wirev1.CredentialKind_CREDENTIAL_KIND_SYSTEM_VM:       "system_vm",
	wirev1.CredentialKind_CREDENTIAL_KIND_IMPERSONATION:   "impersonation",
}

// ParseName returns the value with a name in the API. ok is false if there is none.
func ParseName[Value comparable](names map[Value]string, name string) (Value, bool) {
	for value, known := range names {
		if known == name {
			return value, true
		}
	}
	var none Value
	return none, false
}
