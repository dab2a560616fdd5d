// Package http serves the platform over HTTP. It assembles the packages below it:
//
//	server    the core: the way of a request from the network to the handler of its operation; authorization
//	api       the operations of the public API, one type for each resource
//	browser   the pages for people; package browser/pages renders them
//	oauth     the authorization server for OAuth clients
//	mcp       the tools for agents elsewhere, over the Model Context Protocol
//	operator  the operations of the operators' socket
//
// Each package has its rows of one table of routes: method, path, scope, whether the operation is idempotent, summary and
// handler. The OpenAPI document (api/openapi.yaml) describes the same to clients, and a test compares the two.
//
// Flows that cross packages are described where they start: authorization, streams, uploads, processes and terminals in
// server, creating and renaming a workspace in api, invitations in service/invitation, signing in in browser, OAuth in oauth.
package http

import (
	"context"
	"errors"
	"slices"

	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/browser"
	"github.com/atelier-run/atelier/http/mcp"
	"github.com/atelier-run/atelier/http/oauth"
	"github.com/atelier-run/atelier/http/operator"
	"github.com/atelier-run/atelier/http/server"
	"github.com/atelier-run/atelier/keys"
	"github.com/atelier-run/atelier/service/account"
	"github.com/atelier-run/atelier/service/app"
	"github.com/atelier-run/atelier/service/invitation"
	"github.com/atelier-run/atelier/service/session"
)

// Options configures a Server. Asker, Secret, Streams, Drive, Skills, and Timelines and Folders of Sessions are required.
type Options struct {
	server.Options
	Streams api.Streams
	Drive   api.Drive
	Skills  api.Skills
	// Sessions configures the operations of agent sessions.
	Sessions api.SessionOptions
	// Apps configures the operations of apps.
	Apps api.AppOptions
	// Computers runs processes in the computers of workspaces; nil: the server refuses to run any.
	Computers api.Computers
	// Tools has the tools for agents; nil: there are none.
	Tools mcp.Tools
	// Mail sends links by mail; nil: links are returned to the requester, who hands them over.
	Mail account.Mail
	// OIDC is the provider that people can sign in with instead of a password; nil: none.
	OIDC *browser.OIDC
	// People lists the users; their identities at the provider are claimed once. nil: no user has an identity from before.
	People browser.People
	// Directory and Reactions are for operators; nil: they are empty.
	Directory operator.Directory
	Reactions operator.Reactions
	// Progress returns the progress of backups and restores; nil: it is unknown.
	Progress operator.Progress
	// BackUpNode backs the node up; nil: it cannot be backed up.
	BackUpNode operator.BackUpNode
	// RenewCertificate replaces the certificate of a host of the node; nil: the node has none.
	RenewCertificate operator.RenewCertificate
	// CheckJournal checks the journal; nil: it cannot be checked.
	CheckJournal operator.CheckJournal
}

// Server serves the API, the pages, OAuth and the operators' socket.
type Server struct {
	*server.Server
	// Passwords and Invitations run the tasks that mail links.
	Passwords   *account.Links
	Invitations *invitation.Links
	pages       *browser.Pages
}

// New returns a server that serves no listener yet; see server.Server.Serve. Errors: a required option is missing or
// invalid.
func New(o Options) (*Server, error) {
	if o.Streams == nil || o.Drive == nil || o.Skills == nil || o.Sessions.Timelines == nil || o.Sessions.Folders == nil {
		return nil, errors.New("http: Streams, Drive, Skills, Timelines and Folders are required")
	}
	core, err := server.New(o.Options)
	if err != nil {
		return nil, err
	}
	o.Options = core.Options()
	mailer, err := account.NewMailer(o.Mail, o.Registerer)
	if err != nil {
		return nil, err
	}
	passwords, invitations := account.NewLinks(mailer, o.Secret), invitation.NewLinks(mailer, o.Secret)
	apps := &app.Service{Asker: o.Asker, NewID: o.NewID, Folders: o.Sessions.Folders, Clock: o.Clock}
	operations := api.Routes(api.Options{
		Streams: o.Streams, Drive: o.Drive, Skills: o.Skills, Links: invitations, Computers: o.Computers, Sessions: o.Sessions, Apps: o.Apps, AppService: apps,
		SessionService: &session.Service{
			Asker: o.Asker, NewID: o.NewID, Folders: o.Sessions.Folders, Agents: o.Skills, Images: o.Sessions.Images,
		},
		Workspaces: o.Limits.Workspaces,
	})
	authorization := oauth.New(oauth.Options{
		Asker: o.Asker, URL: o.PublicURL, Now: o.Clock, Scopes: server.RequiredCapabilities(operations), NewID: o.NewID,
		Resources: []oauth.Resource{mcp.Resource}, Mint: keys.New, Split: server.SplitToken, Ended: core.EndCredential,
	})
	pages, err := browser.New(browser.Options{Server: core, Links: passwords, OAuth: authorization, OIDC: o.OIDC, People: o.People})
	if err != nil {
		return nil, err
	}
	core.Mount(slices.Concat(
		operations,
		pages.Routes(),
		authorization.Routes(),
		mcp.Routes(o.Tools),
	), operator.Routes(operator.Options{Apps: apps, Directory: o.Directory, Reactions: o.Reactions, Progress: o.Progress,
		BackUpNode: o.BackUpNode, CheckJournal: o.CheckJournal, RenewCertificate: o.RenewCertificate}))
	return &Server{core, passwords, invitations, pages}, nil
}

// Shutdown ends open streams and terminals at once, refuses new ones, and waits for all other requests and for password resets
// in flight.
// When ctx ends it cancels them and returns an error that names them.
func (s *Server) Shutdown(ctx context.Context) error {
	return errors.Join(s.Server.Shutdown(ctx), s.pages.Drain(ctx))
}
