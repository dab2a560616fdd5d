package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"

	"github.com/atelier-run/atelier/computer/apps"
	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
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
	n.edge, err = edge.New(settings)
	return err
}

// appOperations returns the options of the operations of apps.
func (n *Node) appOperations(o Options) api.AppOptions {
	settings := o.HTTP.Apps
	settings.Addresses, settings.Logs = o.appAddresses(), appLogs{n.apps}
	settings.Launcher = n.edge.Launcher()
	return settings
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

// maxLogLines is the number of lines of a log that are sent at once.
const maxLogLines = 256

// appLogs implements api.AppLogs with the supervisor.
type appLogs struct{ apps *apps.Supervisor }

// OpenLog implements api.AppLogs.
func (l appLogs) OpenLog(_ context.Context, workspaceID, appID string) (
	func(ctx context.Context, after uint64, send func(lines []api.AppLine, missed bool) error) error, error,
) {
	read, release, err := l.apps.Logs(workspaceID, appID)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, after uint64, send func(lines []api.AppLine, missed bool) error) error {
		defer release()
		for {
			found := read(after, maxLogLines)
			var lines []api.AppLine
			for _, line := range found.Lines {
				lines, after = append(lines, api.AppLine(line)), line.Seq
			}
			if len(lines) > 0 {
				if err := send(lines, found.Missed); err != nil {
					return err
				}
			}
			select {
			case <-found.News:
			case <-ctx.Done():
				return nil
			}
		}
	}, nil
}
