package api

import (
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// Addresses has the parts of the addresses of apps. The standard address of an app is <scheme>://<app>--<workspace>.<edge host>/.
type Addresses struct {
	// EdgeHost is the host name below which the standard addresses are; empty: localhost for a server whose public URL is on loopback,
	// otherwise the host of that URL.
	EdgeHost string
	// Scheme is http or https, and Port the port of the addresses; empty and 0: those of the public URL.
	Scheme string
	Port   int
}

// addresses returns the addresses with their defaults, which follow from the public URL of the server.
func (a apps) addresses(c *server.Call) Addresses {
	found := a.Addresses
	public, err := url.Parse(c.Link("/"))
	if err != nil {
		return found // the server has checked its URL
	}
	if found.EdgeHost == "" {
		if found.EdgeHost = public.Hostname(); found.EdgeHost == "localhost" || net.ParseIP(found.EdgeHost) != nil {
			found.EdgeHost = "localhost"
		}
	}
	if found.Scheme == "" {
		found.Scheme = public.Scheme
		if found.Port == 0 {
			found.Port, _ = strconv.Atoi(public.Port()) // empty for the port of the scheme
		}
	}
	return found
}

// StandardHost returns the host name of the standard address of an app, without a port.
func (a Addresses) StandardHost(appSlug, workspaceSlug string) string {
	return appSlug + "--" + workspaceSlug + "." + a.EdgeHost
}

// URL returns the address of a host name of an app.
func (a Addresses) URL(host string) string {
	if a.Port != 0 && !(a.Scheme == "https" && a.Port == 443) && !(a.Scheme == "http" && a.Port == 80) {
		host = net.JoinHostPort(host, strconv.Itoa(a.Port))
	}
	return a.Scheme + "://" + host + "/"
}

// hostOf returns a host without its port, in lower case.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(host)
}

// appView is an app as JSON (specification, App). SleepAfterSeconds is an extension.
type appView struct {
	ID                    string            `json:"id"`
	WorkspaceID           string            `json:"workspaceId"`
	AnchorID              string            `json:"anchorId"`
	AnchorPath            string            `json:"anchorPath"`
	AnchorState           string            `json:"anchorState"`
	Command               string            `json:"command"`
	APIScopes             []string          `json:"apiScopes"`
	InstallCommand        string            `json:"installCommand,omitzero"`
	Port                  uint32            `json:"port"`
	Slug                  string            `json:"slug"`
	Name                  string            `json:"name,omitzero"`
	Icon                  string            `json:"icon,omitzero"`
	Visibility            string            `json:"visibility"`
	CanonicalURL          string            `json:"canonicalUrl"`
	CustomDomain          *customDomainView `json:"customDomain,omitzero"`
	RuntimeStatus         string            `json:"runtimeStatus"`
	ReconciliationError   string            `json:"reconciliationError,omitzero"`
	SourceShareID         string            `json:"sourceShareId,omitzero"`
	SourceAppID           string            `json:"sourceAppId,omitzero"`
	SourceShareMode       string            `json:"sourceShareMode,omitzero"`
	ListingSubscriptionID string            `json:"listingSubscriptionId,omitzero"`
	DisabledAt            int64             `json:"disabledAt,omitzero"`
	DisabledByUserID      string            `json:"disabledByUserId,omitzero"`
	CreatedByUserID       string            `json:"createdByUserId"`
	CreatedAt             int64             `json:"createdAt"`
	UpdatedAt             int64             `json:"updatedAt"`
	SleepAfterSeconds     int64             `json:"sleepAfterSeconds,omitzero"`
	Controls              appControls       `json:"controls"`
}

type customDomainView struct {
	Hostname string `json:"hostname"`
	Status   string `json:"status"`
}

type appControls struct {
	ManageDomain  bool `json:"manageDomain"`
	UpdateRuntime bool `json:"updateRuntime"`
	MakePublic    bool `json:"makePublic"`
	MakePrivate   bool `json:"makePrivate"`
	Delete        bool `json:"delete"`
}

var folderStateNames = map[appv1.FolderState]string{
	appv1.FolderState_FOLDER_STATE_ACTIVE:   "active",
	appv1.FolderState_FOLDER_STATE_BROKEN:   "broken",
	appv1.FolderState_FOLDER_STATE_ORPHANED: "orphaned",
}

var runtimeStatusNames = map[appv1.RuntimeStatus]string{
	appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILING: "reconciling",
	appv1.RuntimeStatus_RUNTIME_STATUS_RECONCILED:  "reconciled",
	appv1.RuntimeStatus_RUNTIME_STATUS_FAILED:      "reconcile_failed",
}

// ShareModeNames has the API's names of the modes of replicas.
var ShareModeNames = map[appv1.ShareMode]string{
	appv1.ShareMode_SHARE_MODE_READ:  "read",
	appv1.ShareMode_SHARE_MODE_WRITE: "write",
}

var domainStatusNames = map[appv1.DomainStatus]string{
	appv1.DomainStatus_DOMAIN_STATUS_PENDING:   "pending",
	appv1.DomainStatus_DOMAIN_STATUS_VERIFYING: "verifying",
	appv1.DomainStatus_DOMAIN_STATUS_ACTIVE:    "active",
	appv1.DomainStatus_DOMAIN_STATUS_FAILED:    "failed",
	appv1.DomainStatus_DOMAIN_STATUS_REMOVING:  "removing",
}

// view returns an app as JSON, with the runtime that the computer has accepted, or the requested one if it has accepted none yet. An active
// custom domain is the canonical address.
func (a apps) view(c *server.Call, found *appv1.Description) appView {
	s, may := found.GetApp(), found.GetControls()
	runtime := s.GetAccepted()
	if runtime == nil {
		runtime = s.GetRequested()
	}
	addresses := a.addresses(c)
	view := appView{
		ID: s.GetId(), WorkspaceID: s.GetWorkspaceId(), AnchorID: s.GetAnchorId(), AnchorPath: s.GetPath(),
		AnchorState: folderStateNames[s.GetFolderState()], Command: runtime.GetCommand(), APIScopes: slices.Clone(runtime.GetApiScopes()),
		InstallCommand: runtime.GetInstallCommand(), Port: runtime.GetPort(), Slug: s.GetSlug(), Name: s.GetName(), Icon: s.GetIcon(),
		Visibility:    app.VisibilityNames[s.GetVisibility()],
		CanonicalURL:  addresses.URL(addresses.StandardHost(s.GetSlug(), c.Workspace.Slug)),
		RuntimeStatus: runtimeStatusNames[s.GetRuntimeStatus()], ReconciliationError: s.GetReconciliationError(),
		SourceShareID: s.GetOrigin().GetSourceShareId(), SourceAppID: s.GetOrigin().GetSourceAppId(),
		SourceShareMode: ShareModeNames[s.GetOrigin().GetMode()], ListingSubscriptionID: s.GetOrigin().GetListingSubscriptionId(),
		DisabledAt: s.GetDisabledAt(), DisabledByUserID: s.GetDisabledByUserId(), CreatedByUserID: s.GetCreatedByUserId(),
		CreatedAt: s.GetCreatedAt(), UpdatedAt: s.GetUpdatedAt(), SleepAfterSeconds: runtime.GetSleepAfterMs() / 1000,
		Controls: appControls{may.GetManageDomain(), may.GetUpdateRuntime(), may.GetMakePublic(), may.GetMakePrivate(), may.GetDelete()},
	}
	if view.APIScopes == nil {
		view.APIScopes = []string{}
	}
	if d := s.GetDomain(); d.GetClaimed() {
		view.CustomDomain = &customDomainView{d.GetHostname(), domainStatusNames[d.GetStatus()]}
		if d.GetStatus() == appv1.DomainStatus_DOMAIN_STATUS_ACTIVE {
			view.CanonicalURL = addresses.URL(d.GetHostname())
		}
	}
	return view
}

// domainView is a custom domain as JSON (specification, App domain).
type domainView struct {
	ID                     string         `json:"id"`
	WorkspaceID            string         `json:"workspaceId"`
	AppID                  string         `json:"appId"`
	Hostname               string         `json:"hostname"`
	Status                 string         `json:"status"`
	Records                []recordView   `json:"records"`
	Conflicts              []conflictView `json:"conflicts"`
	LastError              string         `json:"lastError,omitzero"`
	CreatedAt              int64          `json:"createdAt"`
	UpdatedAt              int64          `json:"updatedAt"`
	LastCheckedAt          int64          `json:"lastCheckedAt,omitzero"`
	VerifiedAt             int64          `json:"verifiedAt,omitzero"`
	RetryRequired          bool           `json:"retryRequired,omitzero"`
	OperatorRepairRequired bool           `json:"operatorRepairRequired,omitzero"`
	Checking               bool           `json:"checking,omitzero"`
}

type recordView struct {
	Type   string `json:"type"`
	Domain string `json:"domain"`
	Value  string `json:"value"`
	Reason string `json:"reason,omitzero"`
}

type conflictView struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// viewDomain returns the custom domain of an app as JSON; nil if it has none.
func viewDomain(s *appv1.App) *domainView {
	d := s.GetDomain()
	if !d.GetClaimed() {
		return nil
	}
	view := &domainView{
		ID: d.GetId(), WorkspaceID: s.GetWorkspaceId(), AppID: s.GetId(), Hostname: d.GetHostname(), Status: domainStatusNames[d.GetStatus()],
		Records: []recordView{}, Conflicts: []conflictView{}, LastError: d.GetLastError(), CreatedAt: d.GetCreatedAt(),
		UpdatedAt: d.GetUpdatedAt(), LastCheckedAt: d.GetLastCheckedAt(), VerifiedAt: d.GetVerifiedAt(), RetryRequired: d.GetRetryRequired(),
		OperatorRepairRequired: d.GetOperatorRepairRequired(), Checking: d.GetChecking(),
	}
	for _, r := range d.GetRecords() {
		view.Records = append(view.Records, recordView{r.GetType(), r.GetDomain(), r.GetValue(), r.GetReason()})
	}
	for _, f := range d.GetConflicts() {
		view.Conflicts = append(view.Conflicts, conflictView{f.GetName(), f.GetType(), f.GetValue()})
	}
	return view
}

// appSettings returns the settings of an app's anchor in the list of anchors.
func appSettings(a *workspacev1.App) jsontext.Value {
	settings, err := json.Marshal(struct {
		AppID string `json:"appId"`
		Slug  string `json:"slug"`
	}{a.GetId(), a.GetSlug()})
	if err != nil {
		return nil // only for text that is not UTF-8, which the rules refuse
	}
	return settings
}
