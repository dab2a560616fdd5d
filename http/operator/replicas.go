package operator

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	appservice "github.com/atelier-run/atelier/service/app"
)

// replicas makes and removes replicas: apps that are copies of apps of shared folders. No share makes them yet.
type replicas struct{ apps *appservice.Service }

func (r replicas) routes() []server.Route {
	return []server.Route{
		{Method: http.MethodPost, Path: adminWorkspace + "/replicas", Scope: server.ScopeOperator, Summary: "Make a replica of an app",
			Handler: server.Answer(http.StatusCreated, server.Checked(checkReplica), r.create)},
		{Method: http.MethodDelete, Path: adminWorkspace + "/replicas/{appSlug}", Scope: server.ScopeOperator, Idempotent: true, Summary: "Remove a replica, as if its share was dropped",
			Handler: server.Answer(http.StatusOK, server.Nothing, r.remove)},
	}
}

type replicaRequest struct {
	Path                  string   `json:"path"`
	Slug                  string   `json:"slug"`
	Command               string   `json:"command"`
	InstallCommand        string   `json:"installCommand"`
	Port                  uint32   `json:"port"`
	APIScopes             []string `json:"apiScopes"`
	Name                  string   `json:"name"`
	CreatedByUserID       string   `json:"createdByUserId"`
	SourceShareID         string   `json:"sourceShareId"`
	SourceAppID           string   `json:"sourceAppId"`
	ListingSubscriptionID string   `json:"listingSubscriptionId"`
	// Mode is read or write.
	Mode string `json:"mode"`

	registration *appv1.Registration
}

type replicaRecord struct {
	AppID    string `json:"appId"`
	AnchorID string `json:"anchorId"`
	Slug     string `json:"slug"`
	Path     string `json:"path"`
	Port     uint32 `json:"port"`
}

type replicaRemoved struct {
	// Removed is false while the process of the replica has not ended.
	Removed bool `json:"removed"`
}

func checkReplica(in *replicaRequest) error {
	mode, known := api.ParseName(api.ShareModeNames, in.Mode)
	if !known {
		return server.Invalid("mode must be read or write")
	}
	in.registration = &appv1.Registration{
		Path: in.Path, Slug: in.Slug, Name: in.Name, CreatedByUserId: in.CreatedByUserID,
		Runtime: &appv1.Runtime{Command: in.Command, InstallCommand: in.InstallCommand, Port: in.Port, ApiScopes: in.APIScopes},
		Origin: &appv1.Origin{
			SourceShareId: in.SourceShareID, SourceAppId: in.SourceAppID, ListingSubscriptionId: in.ListingSubscriptionID, Mode: mode,
		},
	}
	return app.CheckRegistration(in.registration)
}

// request returns the request, as the platform, as the operations of package service/app take it. Errors: the errors of
// resolvePathWorkspace.
func (r replicas) request(c *server.Call) (appservice.Request, error) {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return appservice.Request{}, err
	}
	sender := c.Sender()
	sender.Principal = entity.Platform()
	return r.apps.For(sender, w.ID), nil
}

// create registers a replica. When it returns, the app exists.
func (r replicas) create(c *server.Call, in replicaRequest) (replicaRecord, error) {
	request, err := r.request(c)
	if err != nil {
		return replicaRecord{}, err
	}
	made, err := request.Register(c.Context, in.registration)
	if err != nil {
		return replicaRecord{}, err
	}
	a := made.Anchor
	return replicaRecord{made.AppID, a.GetId(), a.GetApp().GetSlug(), a.GetPath(), a.GetApp().GetPorts()[0].GetPort()}, nil
}

// remove begins the removal of a replica, which is complete when its process has ended. Errors: not_found, invalid_request if the app is
// no replica.
func (r replicas) remove(c *server.Call, _ server.None) (replicaRemoved, error) {
	request, err := r.request(c)
	if err != nil {
		return replicaRemoved{}, err
	}
	removed, err := request.RemoveReplica(c.Context, c.Variable("appSlug"))
	return replicaRemoved{removed}, err
}
