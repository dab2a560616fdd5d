package node

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/edge"
	"github.com/atelier-run/atelier/edge/domains"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
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

// edgeEvents are the events after which the edge must not use what it knows, by the kind of their entities: those that change an app, the
// way to it, or the access of its visitors. Any other event of these kinds changes nothing that the edge serves.
var edgeEvents = map[string]map[string]bool{
	entity.KindApp: namesOf(
		&appv1.AppRegistered{}, &appv1.RuntimeReconciled{}, &appv1.RuntimeFailed{}, &appv1.VisibilityChanged{},
		&appv1.RuntimeSettingsChanged{}, &appv1.AppDisabled{}, &appv1.AppEnabled{}, &appv1.AppHalted{}, &appv1.AppSlept{},
		&appv1.AppWoken{}, &appv1.AnchorFollowed{}, &appv1.RemovalRequested{}, &appv1.RemovalFailed{}, &appv1.AppRemoved{},
		&appv1.DomainRequested{}, &appv1.DomainReported{}, &appv1.DomainRemovalRequested{}, &appv1.DomainRefused{}, &appv1.DomainReleased{},
	),
	entity.KindSlug: namesOf(&slugv1.SlugClaimed{}, &slugv1.SlugReleased{}),
	entity.KindWorkspace: namesOf(
		&workspacev1.WorkspaceRenamed{}, &workspacev1.WorkspaceSuspended{}, &workspacev1.WorkspaceResumed{}, &workspacev1.StatusChanged{},
		&workspacev1.MemberRoleChanged{}, &workspacev1.MemberRemoved{},
	),
	entity.KindCredential: namesOf(&credentialv1.CredentialRevoked{}),
	entity.KindGrant:      namesOf(&grantv1.Revoked{}),
	entity.KindUser:       namesOf(&userv1.UserDisabled{}, &userv1.InternalAdminSet{}),
}

func namesOf(events ...proto.Message) map[string]bool {
	names := map[string]bool{}
	for _, e := range events {
		names[entity.MessageName(e)] = true
	}
	return names
}

// observe implements actors.Options.Observe. It removes from the caches of the edge the answers that the events of an entity change,
// and notifies the goroutines that wait for a rename of a workspace.
func (n *Node) observe(kind, identity string, events []persistence.Event) {
	names := edgeEvents[kind]
	if n.edge == nil || names == nil || !slices.ContainsFunc(events, func(e persistence.Event) bool { return names[e.Name] }) {
		return
	}
	var c edge.Change
	switch kind {
	case entity.KindApp:
		_, c.AppID = app.SplitIdentity(identity)
	case entity.KindSlug:
		c.WorkspaceSlug = identity
	case entity.KindWorkspace:
		c.WorkspaceID = identity
		n.renames.notify(identity)
	case entity.KindCredential, entity.KindGrant:
		c.CredentialID = identity
	case entity.KindUser:
		c.UserID = identity
	}
	n.edge.Forget(c)
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
