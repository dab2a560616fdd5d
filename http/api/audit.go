package api

import (
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
)

// auditLog serves the audit log of a workspace.
type auditLog struct{}

func (a auditLog) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodGet, Path: server.WorkspacePath + "/audit", Scope: server.ScopeReadFiles, Summary: "List the workspace's audit log",
			Handler: server.Answer(http.StatusOK, server.DecodePage, a.list)},
	}
}

// AuditView is a row of an audit log as JSON.
type AuditView struct {
	ID         string          `json:"id"`
	Event      string          `json:"event"`
	ActorID    string          `json:"actorId"`
	At         int64           `json:"at"`
	Provenance *provenanceView `json:"provenance,omitzero"`
}

// provenanceView has the fields of the specification's provenance that some event sets.
type provenanceView struct {
	Action            string   `json:"action,omitzero"`
	Actor             string   `json:"actor,omitzero"`
	AnchorID          string   `json:"anchorId,omitzero"`
	AppID             string   `json:"appId,omitzero"`
	AppSlug           string   `json:"appSlug,omitzero"`
	CanonicalEmail    string   `json:"canonicalEmail,omitzero"`
	DeviceID          string   `json:"deviceId,omitzero"`
	DeviceName        string   `json:"deviceName,omitzero"`
	FromPath          string   `json:"fromPath,omitzero"`
	ImageRef          string   `json:"imageRef,omitzero"`
	LifecycleBackupID string   `json:"lifecycleBackupId,omitzero"`
	MemberUserID      string   `json:"memberUserId,omitzero"`
	Name              string   `json:"name,omitzero"`
	NewSlug           string   `json:"newSlug,omitzero"`
	OldSlug           string   `json:"oldSlug,omitzero"`
	Path              string   `json:"path,omitzero"`
	Prefix            string   `json:"prefix,omitzero"`
	PreviousStatus    string   `json:"previousStatus,omitzero"`
	PreviousVMName    string   `json:"previousVmName,omitzero"`
	Reason            string   `json:"reason,omitzero"`
	SessionID         string   `json:"sessionId,omitzero"`
	Slug              string   `json:"slug,omitzero"`
	Source            string   `json:"source,omitzero"`
	TargetEmail       string   `json:"targetEmail,omitzero"`
	ToPath            string   `json:"toPath,omitzero"`
	VMName            string   `json:"vmName,omitzero"`
	ExpiresAt         int64    `json:"expiresAt,omitzero"`
	Acknowledged      bool     `json:"acknowledged,omitzero"`
	BreaksPublicURLs  bool     `json:"breaksPublicUrls,omitzero"`
	Scopes            []string `json:"scopes,omitempty"`
	Tier              string   `json:"tier,omitzero"`
	Kind              string   `json:"kind,omitzero"`
	Role              string   `json:"role,omitzero"`
	OldRole           string   `json:"oldRole,omitzero"`
	Visibility        string   `json:"visibility,omitzero"`
	Mode              string   `json:"mode,omitzero"`
}

func (a auditLog) list(c *server.Call, in server.Listing) (server.Collection[AuditView], error) {
	return server.ReadList(c, entity.KindWorkspace, "audit", in, ViewAudit)
}

// ViewAudit returns a row of an audit log as JSON.
func ViewAudit(e *auditv1.Event) AuditView {
	return AuditView{e.GetId(), e.GetEvent(), e.GetActorId(), e.GetAt(), viewProvenance(e.GetProvenance())}
}

// viewProvenance returns a provenance as JSON; nil if it is empty.
func viewProvenance(p *auditv1.Provenance) *provenanceView {
	if proto.Size(p) == 0 {
		return nil
	}
	return &provenanceView{
		Action: p.GetAction(), Actor: p.GetActor(), AnchorID: p.GetAnchorId(), AppID: p.GetAppId(), AppSlug: p.GetAppSlug(), CanonicalEmail: p.GetCanonicalEmail(), DeviceID: p.GetDeviceId(), DeviceName: p.GetDeviceName(),
		FromPath: p.GetFromPath(), ImageRef: p.GetImageRef(), LifecycleBackupID: p.GetLifecycleBackupId(), MemberUserID: p.GetMemberUserId(), Name: p.GetName(),
		NewSlug: p.GetNewSlug(), OldSlug: p.GetOldSlug(), Path: p.GetPath(), Prefix: p.GetPrefix(), PreviousStatus: p.GetPreviousStatus(),
		PreviousVMName: p.GetPreviousVmName(), Reason: p.GetReason(), SessionID: p.GetSessionId(), Slug: p.GetSlug(),
		Source: p.GetSource(), TargetEmail: p.GetTargetEmail(), ToPath: p.GetToPath(), VMName: p.GetVmName(),
		ExpiresAt: p.GetExpiresAt(), Acknowledged: p.GetAcknowledged(), BreaksPublicURLs: p.GetBreaksPublicUrls(),
		Scopes: p.GetScopes(), Tier: p.GetTier(), Kind: p.GetKind(), Role: p.GetRole(), OldRole: p.GetOldRole(),
		Visibility: p.GetVisibility(), Mode: p.GetMode(),
	}
}
