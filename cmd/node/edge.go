package node

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/kinds"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/persistence"
)

// appAddresses returns the parts of the addresses of apps.
func (o Options) appAddresses() app.Addresses {
	return app.Addresses{EdgeHost: o.Domains.EdgeHost}.WithDefaults(o.HTTP.PublicURL)
}

// newEdge returns the edge, which serves the hosts of apps.
func (n *Node) newEdge(o Options) (err error) {
	at := o.appAddresses()
	host := at.EdgeHost
	if at.Port != 0 {
		host = net.JoinHostPort(host, strconv.Itoa(at.Port))
	}
	settings := o.Edge
	settings.Asker, settings.Dialer, settings.Clock, settings.Log, settings.Registerer = n.Router, n.apps, o.Clock, o.Log, o.Registry
	settings.NewID, settings.PublicURL, settings.EdgeHost = server.NewID, o.HTTP.PublicURL, host
	settings.TrustedProxies = o.HTTP.TrustedProxies
	if settings.Limits.Requests == 0 && o.HTTP.Limits.Connections > 0 {
		// The rest of the connections is for the platform.
		settings.Limits.Requests = max(o.HTTP.Limits.Connections*3/4, 1)
	}
	n.edge, err = edge.New(settings)
	return err
}

// appOperations returns the options of the operations of apps. Tests may have set some.
func (n *Node) appOperations(o Options) api.AppOptions {
	settings := o.HTTP.Apps
	if settings.Launcher == nil {
		settings.Addresses, settings.Launcher = o.appAddresses(), n.edge.Launcher()
	}
	if settings.Logs == nil {
		settings.Logs = appLogs{n.apps}
	}
	return settings
}

// observe implements actors.Options.Observe. It removes from the caches of the edge the answers that the events of an entity change,
// and notifies the goroutines that wait for a rename of a workspace.
func (n *Node) observe(kind, identity string, events []persistence.Event) {
	if n.edge == nil || !slices.ContainsFunc(events, func(e persistence.Event) bool { return kinds.IsExposed(kind, e.Name) }) {
		return
	}
	if kind == entity.KindWorkspace {
		n.certificates.FollowRename(identity)
	}
	n.edge.Forget(edge.ChangeOf(kind, identity))
}

// TLS returns the configuration of HTTPS. It has a certificate of the operator's files if one fits the name of a handshake, and
// otherwise one that the authority has issued.
func (n *Node) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{domains.ChallengeProtocol},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			certificate, err := n.certificateFiles.Certificate(hello)
			if errors.Is(err, server.ErrNoCertificate) {
				return n.Domains.Certificates.Certificate(hello)
			}
			return certificate, err
		},
	}
}

// Challenges returns a handler that answers the requests of the certificate authority, and passes all others on.
func (n *Node) Challenges(next http.Handler) http.Handler {
	return n.Domains.HTTPChallengeHandler(next)
}
