package api

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// maxLaunchPath is the greatest length of the path that a launched app opens at, in bytes.
const maxLaunchPath = 8192

var (
	errNoLauncher = entity.Errorf(entity.Unavailable, "the server serves no apps")
	errLaunchHost = server.Invalid("host must be the standard host of the app or its active custom domain")
	errLaunchPath = server.Invalid("path must begin with a slash and be a valid path of a URL with at most %d bytes", maxLaunchPath)
	errLaunchPair = server.Invalid("host and path must be supplied together")
)

// launch redirects the caller to the app in the path, with access for one host. Errors: not_found, invalid_request.
func (a apps) launch(c *server.Call) error {
	q, err := ofApp(func(c *server.Call) (*server.Query, error) {
		return server.ParseQuery(c.Request.URL.RawQuery, "host", "path")
	})(c)
	if err != nil {
		return err
	}
	id, err := pathApp(c)
	if err != nil {
		return err
	}
	found, err := describeApp(c, id)
	if err != nil {
		return err
	}
	host, path, err := a.destination(c, q, found.GetApp())
	switch {
	case err != nil:
		return err
	case a.Launcher == nil:
		return errNoLauncher
	}
	to, err := a.Launcher.Launch(c.Context, c.Caller.Principal, c.Workspace.ID, id, host, path)
	if err != nil {
		return err
	}
	header := c.Response.Header()
	header.Set("Location", to)
	header.Set("Cache-Control", "no-store")
	header.Set("Referrer-Policy", "no-referrer")
	c.Response.WriteHeader(http.StatusSeeOther)
	return nil
}

// destination returns the host and the path that a request opens: those of its query, or the root of the standard address.
func (a apps) destination(c *server.Call, q *server.Query, s *appv1.App) (host, path string, err error) {
	standard := a.addresses(c).StandardHost(s.GetSlug(), c.Workspace.Slug)
	switch {
	case q.Has("host") != q.Has("path"):
		return "", "", errLaunchPair
	case !q.Has("host"):
		return standard, "/", nil
	}
	path = q.Text("path")
	parsed, err := url.Parse(path)
	if err != nil || len(path) > maxLaunchPath || !strings.HasPrefix(path, "/") || strings.ContainsFunc(path, isOutsideURL) || parsed.Fragment != "" {
		return "", "", errLaunchPath
	}
	host = hostOf(q.Text("host"))
	d := s.GetDomain()
	if host != standard && (d.GetStatus() != appv1.DomainStatus_DOMAIN_STATUS_ACTIVE || host != d.GetHostname()) {
		return "", "", errLaunchHost
	}
	return host, path, nil
}

func isOutsideURL(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == '\\' }

// refuseLaunch sends a visitor who is not signed in and opens the app in a browser window to sign in, and from there back to the launch.
// All others get the ordinary refusal: programs, and pages in frames.
func refuseLaunch(w *server.Response, refused *entity.Error) {
	if refused.Code != entity.Unauthorized || !isDocumentRequest(w.Request) {
		w.WriteRefusal(refused)
		return
	}
	w.Header().Set("Location", "/sign-in?"+url.Values{"next": {w.Request.URL.RequestURI()}}.Encode())
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusSeeOther)
}

// isDocumentRequest reports whether a browser requests a page for its window. Browsers that do not say so (Fetch Metadata) accept HTML.
func isDocumentRequest(r *http.Request) bool {
	if r.Header.Get("Authorization") != "" || r.Method != http.MethodGet {
		return false
	}
	if destination := r.Header.Get("Sec-Fetch-Dest"); destination != "" {
		return destination == "document"
	}
	return strings.Contains(r.Header.Get("Accept"), "text/html")
}
