package api

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/http/server"
)

var (
	errNoLauncher = entity.Errorf(entity.Unavailable, "the server serves no apps")
	errLaunchPair = server.Invalid("host and path must be supplied together, and not be empty")
)

// launch redirects the caller to the app in the path, with access for one host. Errors: not_found, invalid_request.
func (a apps) launch(c *server.Call) error {
	q, err := ofApp(a, func(c *server.Call) (*server.Query, error) {
		return server.ParseQuery(c.Request.URL.RawQuery, "host", "path")
	})(c)
	if err != nil {
		return err
	}
	id, err := a.pathApp(c)
	if err != nil {
		return err
	}
	switch {
	case q.Has("host") != q.Has("path"), q.Has("host") && (q.Text("host") == "" || q.Text("path") == ""):
		return errLaunchPair
	case a.Launcher == nil:
		return errNoLauncher
	}
	to, err := a.Launcher.Launch(c.Context, c.Caller.Principal, c.Workspace.ID, id, q.Text("host"), q.Text("path"))
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

// RefuseLaunch is the Route.Refuse of launching an app. A browser that requests the launch as a document without a credential is redirected
// to the sign-in page, and from there back to the launch. API calls, frames, and signed-in visitors without access get the ordinary
// refusal (specification, Apps, launch rules).
func RefuseLaunch(w *server.Response, refused *entity.Error) {
	if refused.Code != entity.Unauthorized || !isDocumentRequest(w.Request) {
		w.WriteRefusal(refused)
		return
	}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Location", server.SignInPath+"?"+url.Values{"next": {w.Request.URL.RequestURI()}}.Encode())
	w.WriteHeader(http.StatusSeeOther)
}

// isDocumentRequest reports whether a browser requests a page to show in a window, without a key, and not for a script or a frame. Browsers
// without Fetch Metadata are recognized by the types that they accept.
func isDocumentRequest(r *http.Request) bool {
	if _, authorized := r.Header["Authorization"]; authorized || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	if destination := r.Header.Get("Sec-Fetch-Dest"); destination != "" {
		return destination == "document" && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	}
	return r.Header.Get("X-Requested-With") == "" && strings.Contains(r.Header.Get("Accept"), "text/html")
}
