package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// AppBody is the body of a response of the app behind an edge.
var AppBody = strings.Repeat("0123456789abcdef", 64)

// apps answers for the entities of apps, which all have one process: appN--acme.apps.test is the app N, and hN.custom.test a domain of it.
type apps struct {
	process string
	count   int
}

// Ask implements edge.Asker.
func (a *apps) Ask(_ context.Context, c entity.Command) (proto.Message, error) {
	switch m := c.Message.(type) {
	case *slugv1.ResolveSlug:
		return &slugv1.Slug{WorkspaceId: "ws_1"}, nil
	case *workspacev1.FindApp:
		return &workspacev1.Anchor{App: &workspacev1.App{Id: "app_" + strings.TrimPrefix(m.GetSlug(), "app"), Slug: m.GetSlug()}}, nil
	case *workspacev1.DescribeWorkspace:
		return &workspacev1.Description{Workspace: &workspacev1.Workspace{Slug: "acme"}}, nil
	case *bindingv1.DescribeBinding:
		var n int
		if _, err := fmt.Sscanf(c.Identity, "h%d.custom.test", &n); err != nil {
			return &bindingv1.Binding{}, nil
		}
		return &bindingv1.Binding{WorkspaceId: "ws_1", AppId: fmt.Sprintf("app_%d/%s", n%a.count, c.Identity), Status: appv1.DomainStatus_DOMAIN_STATUS_ACTIVE}, nil
	case *appv1.DescribeApp:
		_, id := app.SplitIdentity(c.Identity)
		id, host, _ := strings.Cut(id, "/")
		return &appv1.Description{App: &appv1.App{
			Id: id, WorkspaceId: "ws_1", Slug: "app" + strings.TrimPrefix(id, "app_"), Visibility: appv1.Visibility_VISIBILITY_PUBLIC,
			FolderState: appv1.FolderState_FOLDER_STATE_ACTIVE, Accepted: &appv1.Runtime{Command: "x"}, AcceptedGeneration: 1,
			Domain: &appv1.Domain{Hostname: host, Status: appv1.DomainStatus_DOMAIN_STATUS_ACTIVE},
		}}, nil
	}
	return &wirev1.Done{}, nil
}

// Dial implements edge.Dialer.
func (a *apps) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", a.process)
}

// event is an event of the app, and tick the pause between two of them at /ticks.
var event = "data: " + strings.Repeat("x", 64) + "\n\n"

const tick = 10 * time.Millisecond

// newApp returns a handler that serves AppBody, at /sse events without end, at /ticks such with a pause of tick, and at /echo connections
// that echo.
func newApp() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		c, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
		io.Copy(c, buffered)
	})
	mux.HandleFunc("/sse", func(w http.ResponseWriter, r *http.Request) {
		sendEvents(w, func() bool { return r.Context().Err() == nil })
	})
	mux.HandleFunc("/ticks", func(w http.ResponseWriter, r *http.Request) {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		sendEvents(w, func() bool {
			select {
			case <-ticker.C:
				return true
			case <-r.Context().Done():
				return false
			}
		})
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		io.WriteString(w, AppBody)
	})
	return mux
}

// sendEvents sends events, each with a flush, while more returns true.
func sendEvents(w http.ResponseWriter, more func() bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	for control.Flush() == nil && more() {
		if _, err := io.WriteString(w, event); err != nil {
			return
		}
	}
}

// newEdge returns an edge in front of one process, which stands for count apps.
func newEdge(process string, count int) (*edge.Edge, error) {
	return edge.New(edge.Options{
		Asker: &apps{process, count}, Dialer: &apps{process, count}, PublicURL: &url.URL{Scheme: "http", Host: "atelier.test"}, EdgeHost: "apps.test",
		NewID: func(prefix string) string { return prefix + strings.ToLower(ulid.Make().String()) }, Log: slog.New(slog.DiscardHandler),
		Limits: edge.Limits{AddressBurst: 1 << 20, AddressInterval: time.Microsecond, AddressLookups: 1 << 20, AppRequests: 1 << 20, ClientRequests: 1 << 20},
	})
}

// newBare returns a httputil.ReverseProxy in front of one process. It has connections for each host name of its own, as many idle ones as
// the edge.
func newBare(process string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: p.In.Host})
			p.SetXForwarded()
			p.Out.Host = p.In.Host
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", process)
			},
			MaxIdleConnsPerHost: 64, DisableCompression: true,
		},
	}
}

// AppRequest returns a request for a path at a host.
func AppRequest(host, path string) []byte {
	return []byte("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
}
