package node

import (
	"github.com/atelier-run/atelier/actors"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/client"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/credential"
	"github.com/atelier-run/atelier/entity/device"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/grant"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/entity/workspace"
	clientv1 "github.com/atelier-run/atelier/messages/client/v1"
	credentialv1 "github.com/atelier-run/atelier/messages/credential/v1"
	devicev1 "github.com/atelier-run/atelier/messages/device/v1"
	emailv1 "github.com/atelier-run/atelier/messages/email/v1"
	grantv1 "github.com/atelier-run/atelier/messages/grant/v1"
	slugv1 "github.com/atelier-run/atelier/messages/slug/v1"
	userv1 "github.com/atelier-run/atelier/messages/user/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// kinds are all that a node can activate.
func kinds(journal persistence.Journal, secret []byte) []actors.Kind {
	return []actors.Kind{
		actors.Guard(actors.Rules[*userv1.User, userv1.Command, userv1.Event]{
			Kind: entity.KindUser, Zero: user.Zero, Decide: user.Decide, Evolve: user.Evolve, Reply: user.Reply, Rows: user.Rows,
			Tasks: user.Tasks,
		}, user.Check).WithLists(userLists()),
		actors.Define(actors.Rules[*emailv1.Email, emailv1.Command, emailv1.Event]{
			Kind: entity.KindEmail, Zero: email.Zero, Decide: email.Decide, Evolve: email.Evolve, Reply: email.Reply,
		}),
		actors.Define(actors.Rules[*credentialv1.Credential, credentialv1.Command, credentialv1.Event]{
			Kind: entity.KindCredential, Zero: credential.Zero, Decide: credential.Decide, Evolve: credential.Evolve, Reply: credential.Reply,
		}),
		actors.Define(actors.Rules[*devicev1.Device, devicev1.Command, devicev1.Event]{
			Kind: entity.KindDevice, Zero: device.Zero, Decide: device.Decide, Evolve: device.Evolve, Reply: device.Reply,
		}),
		actors.Define(actors.Rules[*clientv1.Client, clientv1.Command, clientv1.Event]{
			Kind: entity.KindClient, Zero: client.Zero, Decide: client.Decide, Evolve: client.Evolve, Reply: client.Reply,
		}),
		actors.Define(actors.Rules[*grantv1.Grant, grantv1.Command, grantv1.Event]{
			Kind: entity.KindGrant, Zero: grant.Zero, Decide: grant.Decide, Evolve: grant.Evolve, Reply: grant.Reply,
		}),
		actors.Define(actors.Rules[*slugv1.Slug, slugv1.Command, slugv1.Event]{
			Kind: entity.KindSlug, Zero: slug.Zero, Decide: slug.Decide, Evolve: slug.Evolve, Reply: slug.Reply,
		}),
		actors.Guard(actors.Rules[*workspacev1.Workspace, workspacev1.Command, workspacev1.Event]{
			Kind: entity.KindWorkspace, Zero: workspace.Zero, Decide: workspace.Decide, Evolve: workspace.Evolve, Reply: workspace.Reply,
			Rows: workspace.Rows, Tasks: workspace.Tasks,
		}, workspace.Check).
			WithLists(workspaceLists()).
			WithActivity(journal, secret).
			WithPart(computers(), computer.Need),
	}
}
