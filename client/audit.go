package client

// AuditEvent is a change of a workspace's people, keys or life.
type AuditEvent struct {
	ID string `json:"id"`
	// Event is a noun and a verb, as "member.removed".
	Event string `json:"event"`
	// ActorID is a person's id, or "system".
	ActorID    string      `json:"actorId"`
	At         int64       `json:"at"`
	Provenance *Provenance `json:"provenance,omitempty"`
}

// Audit is a workspace's log, newest first.
func (c *Client) Audit(slug string) Collection[AuditEvent] {
	return Collection[AuditEvent]{c, workspacePath(slug, "/audit"), nil}
}

// Provenance names what was done to what; each event has its choice of fields.
type Provenance struct {
	Action                  string      `json:"action,omitempty"`
	Actor                   string      `json:"actor,omitempty"`
	AgentVersion            string      `json:"agentVersion,omitempty"`
	AnchorID                string      `json:"anchorId,omitempty"`
	AppID                   string      `json:"appId,omitempty"`
	AppSlug                 string      `json:"appSlug,omitempty"`
	AgentID                 string      `json:"agentId,omitempty"`
	ArchiveStorageID        string      `json:"archiveStorageId,omitempty"`
	LifecycleBackupID       string      `json:"lifecycleBackupId,omitempty"`
	CanonicalEmail          string      `json:"canonicalEmail,omitempty"`
	ConflictingAnchorID     string      `json:"conflictingAnchorId,omitempty"`
	ConflictingPath         string      `json:"conflictingPath,omitempty"`
	DeviceCode              string      `json:"deviceCode,omitempty"`
	DeviceID                string      `json:"deviceId,omitempty"`
	DeviceName              string      `json:"deviceName,omitempty"`
	DefaultModelID          string      `json:"defaultModelId,omitempty"`
	FromPath                string      `json:"fromPath,omitempty"`
	FromWorkspaceID         string      `json:"fromWorkspaceId,omitempty"`
	RuntimeVersion          string      `json:"runtimeVersion,omitempty"`
	GatewayVersion          string      `json:"gatewayVersion,omitempty"`
	Generation              string      `json:"generation,omitempty"`
	ImageRef                string      `json:"imageRef,omitempty"`
	ImageVersion            string      `json:"imageVersion,omitempty"`
	ListingID               string      `json:"listingId,omitempty"`
	ListingSlug             string      `json:"listingSlug,omitempty"`
	MemberUserID            string      `json:"memberUserId,omitempty"`
	Name                    string      `json:"name,omitempty"`
	NewBillingUserID        string      `json:"newBillingUserId,omitempty"`
	MountPath               string      `json:"mountPath,omitempty"`
	NewSlug                 string      `json:"newSlug,omitempty"`
	PreviousStatus          string      `json:"previousStatus,omitempty"`
	OldBillingUserID        string      `json:"oldBillingUserId,omitempty"`
	OldSlug                 string      `json:"oldSlug,omitempty"`
	ParentShareID           string      `json:"parentShareId,omitempty"`
	Path                    string      `json:"path,omitempty"`
	Prefix                  string      `json:"prefix,omitempty"`
	PreviousVMName          string      `json:"previousVmName,omitempty"`
	PublishID               string      `json:"publishId,omitempty"`
	Reason                  string      `json:"reason,omitempty"`
	SessionID               string      `json:"sessionId,omitempty"`
	ShareID                 string      `json:"shareId,omitempty"`
	Slug                    string      `json:"slug,omitempty"`
	Source                  string      `json:"source,omitempty"`
	SubscriptionID          string      `json:"subscriptionId,omitempty"`
	TargetEmail             string      `json:"targetEmail,omitempty"`
	ToPath                  string      `json:"toPath,omitempty"`
	ToWorkspaceID           string      `json:"toWorkspaceId,omitempty"`
	UserCode                string      `json:"userCode,omitempty"`
	VMName                  string      `json:"vmName,omitempty"`
	Tier                    string      `json:"tier,omitempty"`
	InstallMode             string      `json:"installMode,omitempty"`
	Kind                    string      `json:"kind,omitempty"`
	Mode                    string      `json:"mode,omitempty"`
	Role                    string      `json:"role,omitempty"`
	OldRole                 string      `json:"oldRole,omitempty"`
	Visibility              string      `json:"visibility,omitempty"`
	ActiveAgentSessions     *float64    `json:"activeAgentSessions,omitempty"`
	ActiveTrainJobs         *float64    `json:"activeTrainJobs,omitempty"`
	Confidence              *float64    `json:"confidence,omitempty"`
	ConsecutiveMissingPolls *float64    `json:"consecutiveMissingPolls,omitempty"`
	ExpiresAt               *float64    `json:"expiresAt,omitempty"`
	LastHeartbeatAt         *float64    `json:"lastHeartbeatAt,omitempty"`
	Acknowledged            *bool       `json:"acknowledged,omitempty"`
	BreaksPublicURLs        *bool       `json:"breaksPublicUrls,omitempty"`
	InodeMatch              *bool       `json:"inodeMatch,omitempty"`
	MarkerMatch             *bool       `json:"markerMatch,omitempty"`
	Deleted                 []string    `json:"deleted,omitempty"`
	OldPrefixes             []string    `json:"oldPrefixes,omitempty"`
	Prefixes                []string    `json:"prefixes,omitempty"`
	RevokedShareIDs         []string    `json:"revokedShareIds,omitempty"`
	Scopes                  []string    `json:"scopes,omitempty"`
	Candidates              []Candidate `json:"candidates,omitempty"`
}

// Candidate is where something may have gone.
type Candidate struct {
	FromPath    string  `json:"fromPath"`
	ToPath      string  `json:"toPath"`
	Confidence  float64 `json:"confidence"`
	InodeMatch  bool    `json:"inodeMatch"`
	MarkerMatch bool    `json:"markerMatch"`
}
