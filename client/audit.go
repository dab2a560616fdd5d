package client

// AuditEvent is a row of the audit log of a workspace.
type AuditEvent struct {
	ID string `json:"id"`
	// Event is a noun and a verb, such as "member.removed".
	Event string `json:"event"`
	// ActorID is the id of a user, or "system".
	ActorID    string      `json:"actorId"`
	At         int64       `json:"at"`
	Provenance *Provenance `json:"provenance,omitempty"`
}

// Audit returns the audit log of a workspace, newest row first.
func (c *Client) Audit(slug string) Collection[AuditEvent] {
	return Collection[AuditEvent]{c, workspacePath(slug, "/audit"), nil}
}

// Provenance describes the subject and the circumstances of an audit event. Each event sets some of the fields.
type Provenance struct {
	Action            string   `json:"action,omitempty"`
	Actor             string   `json:"actor,omitempty"`
	AnchorID          string   `json:"anchorId,omitempty"`
	AppID             string   `json:"appId,omitempty"`
	AppSlug           string   `json:"appSlug,omitempty"`
	CanonicalEmail    string   `json:"canonicalEmail,omitempty"`
	DeviceID          string   `json:"deviceId,omitempty"`
	DeviceName        string   `json:"deviceName,omitempty"`
	FromPath          string   `json:"fromPath,omitempty"`
	ImageRef          string   `json:"imageRef,omitempty"`
	LifecycleBackupID string   `json:"lifecycleBackupId,omitempty"`
	MemberUserID      string   `json:"memberUserId,omitempty"`
	Name              string   `json:"name,omitempty"`
	NewSlug           string   `json:"newSlug,omitempty"`
	OldSlug           string   `json:"oldSlug,omitempty"`
	Path              string   `json:"path,omitempty"`
	Prefix            string   `json:"prefix,omitempty"`
	PreviousStatus    string   `json:"previousStatus,omitempty"`
	PreviousVMName    string   `json:"previousVmName,omitempty"`
	Reason            string   `json:"reason,omitempty"`
	SessionID         string   `json:"sessionId,omitempty"`
	Slug              string   `json:"slug,omitempty"`
	Source            string   `json:"source,omitempty"`
	TargetEmail       string   `json:"targetEmail,omitempty"`
	ToPath            string   `json:"toPath,omitempty"`
	VMName            string   `json:"vmName,omitempty"`
	Tier              string   `json:"tier,omitempty"`
	Kind              string   `json:"kind,omitempty"`
	Role              string   `json:"role,omitempty"`
	OldRole           string   `json:"oldRole,omitempty"`
	Visibility        string   `json:"visibility,omitempty"`
	Mode              string   `json:"mode,omitempty"`
	ExpiresAt         int64    `json:"expiresAt,omitempty"`
	Acknowledged      bool     `json:"acknowledged,omitempty"`
	BreaksPublicURLs  bool     `json:"breaksPublicUrls,omitempty"`
	Scopes            []string `json:"scopes,omitempty"`
}
