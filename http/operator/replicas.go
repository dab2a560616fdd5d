package operator

import (
	"net/http"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/http/api"
	"github.com/atelier-run/atelier/http/server"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/service"
)

// replicas makes and removes replicas: apps that are copies of apps of shared folders. No share makes them yet.
type replicas struct{ folders api.Folders }

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

// create registers a replica. When it returns, the app exists.
func (r replicas) create(c *server.Call, in replicaRequest) (replicaRecord, error) {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return replicaRecord{}, err
	}
	seq, folder, err := api.FindAppFolder(c, r.folders, w.ID, in.Path)
	if err != nil {
		return replicaRecord{}, err
	}
	in.registration.Path, in.registration.AppId, in.registration.AnchorId = folder, c.NewID(app.IDPrefix), c.NewID("anc_")
	anchor, err := server.Ask[*workspacev1.Anchor](c, service.PlatformCommand(c, entity.KindWorkspace, w.ID, &workspacev1.RegisterApp{Registration: in.registration, Seq: seq}))
	if err != nil {
		return replicaRecord{}, err
	}
	return replicaRecord{
		anchor.GetApp().GetId(), anchor.GetId(), anchor.GetApp().GetSlug(), anchor.GetPath(), anchor.GetApp().GetPorts()[0].GetPort(),
	}, c.Settle(entity.KindWorkspace, w.ID)
}

// remove begins the removal of a replica, which is complete when its process has ended. Errors: not_found, invalid_request if the app is
// no replica.
func (r replicas) remove(c *server.Call, _ server.None) (replicaRemoved, error) {
	w, err := resolvePathWorkspace(c)
	if err != nil {
		return replicaRemoved{}, err
	}
	anchor, err := server.Ask[*workspacev1.Anchor](c, service.PlatformCommand(c, entity.KindWorkspace, w.ID, &workspacev1.FindApp{Slug: c.Variable("appSlug")}))
	if err != nil {
		if entity.HasCode(err, entity.NotFound) {
			return replicaRemoved{true}, nil
		}
		return replicaRemoved{}, err
	}
	identity := app.Identity(w.ID, anchor.GetApp().GetId())
	found, err := server.Ask[*appv1.Description](c, service.PlatformCommand(c, entity.KindApp, identity, &appv1.DescribeApp{}))
	switch {
	case err != nil:
		return replicaRemoved{}, err
	case found.GetApp().GetOrigin() == nil:
		return replicaRemoved{}, server.Invalid("the app is no replica; its members unregister it")
	}
	removal := service.PlatformCommand(c, entity.KindApp, identity, &appv1.RemoveApp{TaskId: c.NewID("stop_")})
	_, err = server.Ask[*appv1.Description](c, removal)
	return replicaRemoved{}, err
}
