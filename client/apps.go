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

// App is a folder of a workspace's drive with a command that serves HTTP.
type App struct {
	ID          string `json:"id"`
	WorkspaceID string `json:"workspaceId"`
	AnchorID    string `json:"anchorId"`
	// AnchorPath is the folder; AnchorState is active, broken or orphaned.
	AnchorPath     string   `json:"anchorPath"`
	AnchorState    string   `json:"anchorState"`
	Command        string   `json:"command"`
	APIScopes      []string `json:"apiScopes"`
	InstallCommand string   `json:"installCommand,omitempty"`
	Port           int      `json:"port"`
	Slug           string   `json:"slug"`
	Name           string   `json:"name,omitempty"`
	Icon           string   `json:"icon,omitempty"`
	// Visibility is folder or public.
	Visibility   string           `json:"visibility"`
	CanonicalURL string           `json:"canonicalUrl"`
	CustomDomain *AppCustomDomain `json:"customDomain,omitempty"`
	// RuntimeStatus is reconciling, reconciled or reconcile_failed.
	RuntimeStatus       string `json:"runtimeStatus"`
	ReconciliationError string `json:"reconciliationError,omitempty"`
	SourceShareID       string `json:"sourceShareId,omitempty"`
	SourceAppID         string `json:"sourceAppId,omitempty"`
	// SourceShareMode is read or write.
	SourceShareMode       string `json:"sourceShareMode,omitempty"`
	ListingSubscriptionID string `json:"listingSubscriptionId,omitempty"`
	DisabledAt            int64  `json:"disabledAt,omitempty"`
	DisabledByUserID      string `json:"disabledByUserId,omitempty"`
	CreatedByUserID       string `json:"createdByUserId"`
	CreatedAt             int64  `json:"createdAt"`
	UpdatedAt             int64  `json:"updatedAt"`
	// SleepAfterSeconds is the time without requests after which the process ends; 0: it does not.
	SleepAfterSeconds int64       `json:"sleepAfterSeconds,omitempty"`
	Controls          AppControls `json:"controls"`
}

// AppCustomDomain is the custom domain of an app in brief; see AppDomain.
type AppCustomDomain struct {
	Hostname string `json:"hostname"`
	Status   string `json:"status"`
}

// AppControls has the caller's rights to an app.
type AppControls struct {
	ManageDomain  bool `json:"manageDomain"`
	UpdateRuntime bool `json:"updateRuntime"`
	MakePublic    bool `json:"makePublic"`
	MakePrivate   bool `json:"makePrivate"`
	Delete        bool `json:"delete"`
}

// NewApp is the input of RegisterApp. The last five fields are optional.
type NewApp struct {
	Path              string   `json:"path"`
	Slug              string   `json:"slug"`
	Command           string   `json:"command"`
	APIScopes         []string `json:"apiScopes"`
	InstallCommand    string   `json:"installCommand,omitempty"`
	Port              int      `json:"port,omitempty"`
	Name              string   `json:"name,omitempty"`
	Icon              string   `json:"icon,omitempty"`
	SleepAfterSeconds int64    `json:"sleepAfterSeconds,omitempty"`
}

// AppChange is the input of UpdateApp. Nil fields do not change.
type AppChange struct {
	Command           *string         `json:"command,omitempty"`
	APIScopes         *[]string       `json:"apiScopes,omitempty"`
	InstallCommand    *InstallCommand `json:"installCommand,omitempty"`
	Port              *int            `json:"port,omitempty"`
	Name              *string         `json:"name,omitempty"`
	Icon              *string         `json:"icon,omitempty"`
	SleepAfterSeconds *int64          `json:"sleepAfterSeconds,omitempty"`
}

// InstallCommand is an install command; empty: the app has none any more.
type InstallCommand string

// MarshalJSON encodes the empty command as null.
func (c InstallCommand) MarshalJSON() ([]byte, error) {
	if c == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(c))
}

// AppsQuery selects apps. Empty fields select all.
type AppsQuery struct {
	ID string
	// Cwd selects the app with the deepest folder that contains a path.
	Cwd string
	// Path and Scope select apps by their folder; Scope is self (the default), children or subtree. Nil: any.
	Path  *string
	Scope string
}

func (q AppsQuery) values() url.Values {
	query := url.Values{}
	for name, value := range map[string]string{"id": q.ID, "cwd": q.Cwd, "scope": q.Scope} {
		if value != "" {
			query.Set(name, value)
		}
	}
	if q.Path != nil {
		query.Set("path", *q.Path)
	}
	return query
}

// AppPage is a page of apps, with the caller's rights to the list.
type AppPage struct {
	Page[App]
	Meta AppsMeta `json:"meta"`
}

// AppsMeta has the caller's rights to the list of apps.
type AppsMeta struct {
	Capabilities AppsCapabilities `json:"capabilities"`
}

// AppsCapabilities says whether the caller may register an app.
type AppsCapabilities struct {
	Register bool `json:"register"`
}

type appAnswer struct {
	App App `json:"app"`
}

type okAnswer struct {
	OK bool `json:"ok"`
}

func appPath(slug, appSlug, below string) string {
	return workspacePath(slug, "/apps/"+segment(appSlug)+below)
}

// Apps returns the apps of a workspace, in the order of registration.
func (c *Client) Apps(slug string, q AppsQuery) Collection[App] {
	return Collection[App]{c, workspacePath(slug, "/apps"), q.values()}
}

// AppPage returns one page of Apps, and the caller's rights to the list.
func (c *Client) AppPage(ctx context.Context, slug string, q AppsQuery, p Paging) (AppPage, error) {
	query := q.values()
	p.add(query)
	return call[AppPage](ctx, c, request{method: http.MethodGet, path: workspacePath(slug, "/apps"), query: query})
}

// App returns the app with a slug. Codes: not_found.
func (c *Client) App(ctx context.Context, slug, appSlug string) (App, error) {
	return c.callApp(ctx, request{method: http.MethodGet, path: appPath(slug, appSlug, "")})
}

// RegisterApp makes a folder of the drive an app, and waits until its process runs, or for a minute. Codes: slug_taken, path_in_use,
// port_in_use, limit_reached, reconcile_failed: the app is registered and does not run, and Error.Reason says why.
func (c *Client) RegisterApp(ctx context.Context, slug string, in NewApp) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPost, path: workspacePath(slug, "/apps"), in: in})
}

// UpdateApp changes an app. A change of more than the name and the icon waits as RegisterApp does. Codes: port_in_use, reconcile_failed: the
// app runs as before.
func (c *Client) UpdateApp(ctx context.Context, slug, appSlug string, in AppChange) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPatch, path: appPath(slug, appSlug, ""), in: in})
}

// UnregisterApp stops serving the app with a slug and unregisters it; its folder stays. It has no effect if there is none. Codes:
// reconcile_failed: the app is still registered.
func (c *Client) UnregisterApp(ctx context.Context, slug, appSlug string) error {
	_, err := call[okAnswer](ctx, c, request{method: http.MethodDelete, path: appPath(slug, appSlug, ""), idempotent: true})
	return err
}

// ReanchorApp binds an app to another folder. Codes: path_in_use.
func (c *Client) ReanchorApp(ctx context.Context, slug, appSlug string, to NewAnchorPath) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPost, path: appPath(slug, appSlug, "/reanchor"), in: to})
}

// AppVisibility is the input of SetAppVisibility: folder or public.
type AppVisibility struct {
	Visibility string `json:"visibility"`
}

// SetAppVisibility makes an app public, which only owners may do, or private to the workspace. Codes: forbidden.
func (c *Client) SetAppVisibility(ctx context.Context, slug, appSlug string, in AppVisibility) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPut, path: appPath(slug, appSlug, "/visibility"), in: in, idempotent: true})
}

// AppRuntime are the settings of an app's runtime. A setting of 0 has its default.
type AppRuntime struct {
	// ResponseTimeoutSeconds is the time in which the app must begin its response to a request; 0: the time of the server.
	ResponseTimeoutSeconds int64 `json:"responseTimeoutSeconds,omitempty"`
}

type runtimeAnswer struct {
	Runtime AppRuntime `json:"runtime"`
}

// AppRuntime returns the settings of an app's runtime.
func (c *Client) AppRuntime(ctx context.Context, slug, appSlug string) (AppRuntime, error) {
	found, err := call[runtimeAnswer](ctx, c, request{method: http.MethodGet, path: appPath(slug, appSlug, "/runtime")})
	return found.Runtime, err
}

// SetAppRuntime replaces all settings of an app's runtime, and returns them. Codes: forbidden.
func (c *Client) SetAppRuntime(ctx context.Context, slug, appSlug string, in AppRuntime) (AppRuntime, error) {
	set, err := call[runtimeAnswer](ctx, c, request{method: http.MethodPut, path: appPath(slug, appSlug, "/runtime"), in: in, idempotent: true})
	return set.Runtime, err
}

// AppDisabling is the input of SetAppDisabled.
type AppDisabling struct {
	Disabled bool `json:"disabled"`
}

// SetAppDisabled disables an app, or enables it again.
func (c *Client) SetAppDisabled(ctx context.Context, slug, appSlug string, in AppDisabling) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPut, path: appPath(slug, appSlug, "/disabled"), in: in, idempotent: true})
}

// RestartApp runs the configuration of an app in a new process, and waits as RegisterApp does. Codes: reconcile_failed.
func (c *Client) RestartApp(ctx context.Context, slug, appSlug string) (App, error) {
	return c.callApp(ctx, request{method: http.MethodPost, path: appPath(slug, appSlug, "/restart")})
}

func (c *Client) callApp(ctx context.Context, r request) (App, error) {
	found, err := call[appAnswer](ctx, c, r)
	return found.App, err
}

// AppLine is a line of the output of an app.
type AppLine struct {
	Seq uint64 `json:"seq"`
	At  int64  `json:"at"`
	// Stream is install, stdout, stderr or platform.
	Stream string `json:"stream"`
	Text   string `json:"text"`
	// Cursor resumes the log after the line.
	Cursor string `json:"-"`
	// Missed is set if lines before this one are not available any more.
	Missed bool `json:"-"`
}

// AppLog streams the stored output of an app, after a cursor if there is one, and then each new line. It resumes as Events does. The last
// value is the error.
func (c *Client) AppLog(ctx context.Context, slug, appSlug, cursor string) iter.Seq2[AppLine, error] {
	return c.appLog(ctx, slug, appSlug, cursor, nil)
}

// StoredAppLog is AppLog for the stored output alone. The iteration ends without an error when it has returned all lines.
func (c *Client) StoredAppLog(ctx context.Context, slug, appSlug, cursor string) iter.Seq2[AppLine, error] {
	return c.appLog(ctx, slug, appSlug, cursor, url.Values{"follow": {"false"}})
}

func (c *Client) appLog(ctx context.Context, slug, appSlug, cursor string, query url.Values) iter.Seq2[AppLine, error] {
	return func(yield func(AppLine, error) bool) {
		f, missed := &follower{client: c, path: appPath(slug, appSlug, "/logs"), query: query, cursor: cursor, retry: firstRetry}, false
		f.deliver = func(event, id string, data []byte) error {
			switch event {
			case "missed":
				missed = true
				return nil
			case "end":
				return errStopped
			}
			line := AppLine{Cursor: id, Missed: missed}
			if err := json.Unmarshal(data, &line); err != nil {
				return fmt.Errorf("%w: %w", errMalformed, err)
			}
			missed = false
			f.advance(id)
			if !yield(line, nil) {
				return errStopped
			}
			return nil
		}
		if err := f.follow(ctx); !errors.Is(err, errStopped) {
			yield(AppLine{}, err)
		}
	}
}
