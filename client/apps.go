package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
)

// App is a folder of the drive with a command that serves HTTP.
type App struct {
	ID          string `json:"id"`
	WorkspaceID string `json:"workspaceId"`
	AnchorID    string `json:"anchorId"`
	AnchorPath  string `json:"anchorPath"`
	// AnchorState is active, broken or orphaned.
	AnchorState    string   `json:"anchorState"`
	Command        string   `json:"command"`
	APIScopes      []string `json:"apiScopes"`
	InstallCommand string   `json:"installCommand,omitempty"`
	Port           int      `json:"port"`
	Slug           string   `json:"slug"`
	Name           string   `json:"name,omitempty"`
	// Icon is a path relative to the folder of the app.
	Icon string `json:"icon,omitempty"`
	// Visibility is folder, for the members of the workspace, or public.
	Visibility string `json:"visibility"`
	// CanonicalURL is the address of the app.
	CanonicalURL string         `json:"canonicalUrl"`
	CustomDomain *AppDomainName `json:"customDomain,omitempty"`
	// RuntimeStatus is reconciling, reconciled or reconcile_failed. ReconciliationError is the reason of the last failure.
	RuntimeStatus         string `json:"runtimeStatus"`
	ReconciliationError   string `json:"reconciliationError,omitempty"`
	SourceShareID         string `json:"sourceShareId,omitempty"`
	SourceAppID           string `json:"sourceAppId,omitempty"`
	SourceShareMode       string `json:"sourceShareMode,omitempty"`
	ListingSubscriptionID string `json:"listingSubscriptionId,omitempty"`
	// DisabledAt is 0 if the app is not disabled.
	DisabledAt       int64  `json:"disabledAt,omitempty"`
	DisabledByUserID string `json:"disabledByUserId,omitempty"`
	CreatedByUserID  string `json:"createdByUserId"`
	CreatedAt        int64  `json:"createdAt"`
	UpdatedAt        int64  `json:"updatedAt"`
	// SleepAfterSeconds is the time without requests after which the process ends until the next request; 0: it never does.
	SleepAfterSeconds int64       `json:"sleepAfterSeconds,omitempty"`
	Controls          AppControls `json:"controls"`
}

// AppDomainName is the custom host name of an app. Status is that of its AppDomain.
type AppDomainName struct {
	Hostname string `json:"hostname"`
	Status   string `json:"status"`
}

// AppControls say what the caller may do with an app.
type AppControls struct {
	ManageDomain  bool `json:"manageDomain"`
	UpdateRuntime bool `json:"updateRuntime"`
	MakePublic    bool `json:"makePublic"`
	MakePrivate   bool `json:"makePrivate"`
	Delete        bool `json:"delete"`
}

// NewApp is the input of RegisterApp.
type NewApp struct {
	// Path is a folder of the drive.
	Path           string `json:"path"`
	Slug           string `json:"slug"`
	Command        string `json:"command"`
	InstallCommand string `json:"installCommand,omitempty"`
	// APIScopes are the scopes of the key of the app. Without any, the app has none.
	APIScopes []string `json:"apiScopes"`
	// Port is chosen by the server if it is 0.
	Port              int    `json:"port,omitempty"`
	Name              string `json:"name,omitempty"`
	Icon              string `json:"icon,omitempty"`
	SleepAfterSeconds int64  `json:"sleepAfterSeconds,omitempty"`
}

// AppUpdate is the input of UpdateApp. A nil field is not changed; an install command that is empty is removed.
type AppUpdate struct {
	Command           *string
	InstallCommand    *string
	APIScopes         *[]string
	Port              *int
	Name              *string
	Icon              *string
	SleepAfterSeconds *int64
}

// MarshalJSON implements json.Marshaler.
func (u AppUpdate) MarshalJSON() ([]byte, error) {
	in := struct {
		Command           *string         `json:"command,omitempty"`
		InstallCommand    json.RawMessage `json:"installCommand,omitempty"`
		APIScopes         *[]string       `json:"apiScopes,omitempty"`
		Port              *int            `json:"port,omitempty"`
		Name              *string         `json:"name,omitempty"`
		Icon              *string         `json:"icon,omitempty"`
		SleepAfterSeconds *int64          `json:"sleepAfterSeconds,omitempty"`
	}{u.Command, nil, u.APIScopes, u.Port, u.Name, u.Icon, u.SleepAfterSeconds}
	if u.InstallCommand != nil {
		in.InstallCommand = json.RawMessage("null")
		if *u.InstallCommand != "" {
			text, err := json.Marshal(*u.InstallCommand)
			if err != nil {
				return nil, err
			}
			in.InstallCommand = text
		}
	}
	return json.Marshal(in)
}

// AppsQuery selects the apps of a list.
type AppsQuery struct {
	ID string
	// Cwd selects the deepest app whose folder contains it.
	Cwd string
	// Path and Scope select apps by their folder. Scope is subtree, children or self; empty: self.
	Path, Scope string
}

func (q AppsQuery) values() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"id": q.ID, "cwd": q.Cwd, "path": q.Path, "scope": q.Scope} {
		if value != "" {
			query.Set(name, value)
		}
	}
	return query
}

const appsPath = "/apps"

func appPath(slug, appSlug, below string) string {
	return workspacePath(slug, appsPath+"/"+segment(appSlug)+below)
}

type appAnswer struct {
	App App `json:"app"`
}

func (c *Client) callApp(ctx context.Context, r request) (App, error) {
	found, err := call[appAnswer](ctx, c, r)
	return found.App, err
}

// Apps returns the apps of a workspace, in the order of registration.
func (c *Client) Apps(slug string, q AppsQuery) Collection[App] {
	return Collection[App]{c, workspacePath(slug, appsPath), q.values()}
}

// App returns an app.
func (c *Client) App(ctx context.Context, slug, appSlug string) (App, error) {
	return c.callApp(ctx, request{method: http.MethodGet, path: appPath(slug, appSlug, "")})
}

// RegisterApp registers an app and waits until the computer of the workspace runs it. If that takes longer than the server waits, the app
// is reconciling. Codes: slug_taken, path_in_use, port_in_use, reconcile_failed (the app stays registered, and *Error has the reason).
func (c *Client) RegisterApp(ctx context.Context, slug string, in NewApp) (App, error) {
	if in.APIScopes == nil {
		in.APIScopes = []string{}
	}
	return c.callApp(ctx, request{method: http.MethodPost, path: workspacePath(slug, appsPath), in: in})
}

// UpdateApp changes an app. After a change of the runtime it waits as RegisterApp does. Codes: port_in_use, reconcile_failed.
func (c *Client) UpdateApp(ctx context.Context, slug, appSlug string, in AppUpdate) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPatch, path: appPath(slug, appSlug, ""), in: in})
}

// RestartApp replaces the process of an app, and waits as RegisterApp does. Codes: reconcile_failed.
func (c *Client) RestartApp(ctx context.Context, slug, appSlug string) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPost, path: appPath(slug, appSlug, "/restart")})
}

// ReanchorApp binds an app to another folder. Codes: path_in_use.
func (c *Client) ReanchorApp(ctx context.Context, slug, appSlug string, to NewAnchorPath) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPost, path: appPath(slug, appSlug, "/reanchor"), in: to})
}

// SetAppVisibility makes an app public, or private to the members of the workspace (folder).
func (c *Client) SetAppVisibility(ctx context.Context, slug, appSlug, visibility string) (App, error) {
	return c.callApp(ctx, request{
		method: http.MethodPut, path: appPath(slug, appSlug, "/visibility"), idempotent: true, in: map[string]string{"visibility": visibility},
	})
}

// SetAppDisabled disables an app, or enables it again.
func (c *Client) SetAppDisabled(ctx context.Context, slug, appSlug string, disabled bool) (App, error) {
	return c.callApp(ctx, request{
		method: http.MethodPut, path: appPath(slug, appSlug, "/disabled"), idempotent: true, in: map[string]bool{"disabled": disabled},
	})
}

// DeleteApp ends the process of an app and unregisters it. It succeeds also if there is no such app. Codes: reconcile_failed.
func (c *Client) DeleteApp(ctx context.Context, slug, appSlug string) error {
	_, err := call[struct{}](ctx, c, request{method: http.MethodDelete, path: appPath(slug, appSlug, ""), idempotent: true})
	return err
}

// LaunchApp returns the address that opens a path of an app in a browser as the caller. It serves once, within a minute. host is the
// standard host of the app or its active custom domain; with an empty host and path, it opens the root of the standard address.
func (c *Client) LaunchApp(ctx context.Context, slug, appSlug, host, path string) (string, error) {
	target := appPath(slug, appSlug, "/launch")
	query := url.Values{}
	if host != "" || path != "" {
		query = url.Values{"host": {host}, "path": {path}}
	}
	h, err := c.newRequest(ctx, http.MethodGet, target, query, http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := c.http.Do(h)
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusSeeOther {
		return "", newError(response)
	}
	return response.Header.Get("Location"), response.Body.Close()
}

// AppLine is a line of the log of an app.
type AppLine struct {
	Seq uint64 `json:"seq"`
	// At is the time in milliseconds since the Unix epoch.
	At int64 `json:"at"`
	// Stream is install, stdout, stderr or platform.
	Stream string `json:"stream"`
	Text   string `json:"text"`
}

// AppLogFrame is a line of the log of an app, with the cursor that resumes the stream after it.
type AppLogFrame struct {
	// Line is nil where lines are missing, which the server did not keep.
	Line   *AppLine
	Cursor string
}

// AppLog streams the lines of the log of an app after a cursor, or all that the server has, and then each new line. It resumes as Events
// does. The last value is the error.
func (c *Client) AppLog(ctx context.Context, slug, appSlug, cursor string) iter.Seq2[AppLogFrame, error] {
	return func(yield func(AppLogFrame, error) bool) {
		f := &follower{client: c, path: appPath(slug, appSlug, "/logs"), cursor: cursor, retry: firstRetry}
		f.deliver = func(event, id string, data []byte) error {
			frame := AppLogFrame{}
			if event != "missed" {
				frame.Line, frame.Cursor = &AppLine{}, id
				if err := json.Unmarshal(data, frame.Line); err != nil {
					return fmt.Errorf("%w: %w", errMalformed, err)
				}
				f.advance(id)
			}
			if !yield(frame, nil) {
				return errStopped
			}
			return nil
		}
		if err := f.follow(ctx); !errors.Is(err, errStopped) {
			yield(AppLogFrame{}, err)
		}
	}
}

// AppDomain is the custom domain of an app.
type AppDomain struct {
	ID          string `json:"id"`
	WorkspaceID string `json:"workspaceId"`
	AppID       string `json:"appId"`
	Hostname    string `json:"hostname"`
	// Status is pending, verifying, active, failed or removing.
	Status string `json:"status"`
	// Records are to be made in DNS; Conflicts are those that stand in their way.
	Records       []DomainRecord   `json:"records"`
	Conflicts     []DomainConflict `json:"conflicts"`
	LastError     string           `json:"lastError,omitempty"`
	CreatedAt     int64            `json:"createdAt"`
	UpdatedAt     int64            `json:"updatedAt"`
	LastCheckedAt int64            `json:"lastCheckedAt,omitempty"`
	VerifiedAt    int64            `json:"verifiedAt,omitempty"`
	// RetryRequired: the removal needs a RecheckAppDomain. OperatorRepairRequired: it needs the operator of the server.
	RetryRequired          bool `json:"retryRequired,omitempty"`
	OperatorRepairRequired bool `json:"operatorRepairRequired,omitempty"`
	Checking               bool `json:"checking,omitempty"`
}

// DomainRecord is a DNS record to be made. Reason says why it is not found yet.
type DomainRecord struct {
	Type   string `json:"type"`
	Domain string `json:"domain"`
	Value  string `json:"value"`
	Reason string `json:"reason,omitempty"`
}

// DomainConflict is a DNS record that must be removed.
type DomainConflict struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Value string `json:"value"`
}

// AppDomainItem is a custom domain of a workspace with its app.
type AppDomainItem struct {
	Domain AppDomain      `json:"domain"`
	App    AppDomainOwner `json:"app"`
}

// AppDomainOwner is the app that has a custom domain.
type AppDomainOwner struct {
	ID       string            `json:"id"`
	Slug     string            `json:"slug"`
	Name     string            `json:"name,omitempty"`
	Controls AppDomainControls `json:"controls"`
}

// AppDomainControls say what the caller may do with a custom domain.
type AppDomainControls struct {
	ManageDomain bool `json:"manageDomain"`
}

type domainAnswer struct {
	Domain *AppDomain `json:"domain"`
}

func (c *Client) callDomain(ctx context.Context, r request) (*AppDomain, error) {
	found, err := call[domainAnswer](ctx, c, r)
	return found.Domain, err
}

// AppDomain returns the custom domain of an app; nil if it has none.
func (c *Client) AppDomain(ctx context.Context, slug, appSlug string) (*AppDomain, error) {
	return c.callDomain(ctx, request{method: http.MethodGet, path: appPath(slug, appSlug, "/domain")})
}

// AttachAppDomain attaches a custom domain to an app. Codes: domain_occupied, hostname_in_use, domain_cleanup_pending.
func (c *Client) AttachAppDomain(ctx context.Context, slug, appSlug, hostname string) (*AppDomain, error) {
	return c.callDomain(ctx, request{
		method: http.MethodPut, path: appPath(slug, appSlug, "/domain"), idempotent: true, in: map[string]string{"hostname": hostname},
	})
}

// RecheckAppDomain requests a check of a custom domain, or another attempt of its removal. Codes: domain_not_configured.
func (c *Client) RecheckAppDomain(ctx context.Context, slug, appSlug string) (*AppDomain, error) {
	return c.callDomain(ctx, request{method: http.MethodPost, path: appPath(slug, appSlug, "/domain/recheck")})
}

// RemoveAppDomain removes the custom domain of an app. It returns the domain while it is being removed, and nil afterwards.
func (c *Client) RemoveAppDomain(ctx context.Context, slug, appSlug string) (*AppDomain, error) {
	return c.callDomain(ctx, request{method: http.MethodDelete, path: appPath(slug, appSlug, "/domain"), idempotent: true})
}

// AppDomains returns the custom domains of a workspace.
func (c *Client) AppDomains(slug string) Collection[AppDomainItem] {
	return Collection[AppDomainItem]{c, workspacePath(slug, "/app-domains"), nil}
}
