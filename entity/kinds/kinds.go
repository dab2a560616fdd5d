// Package kinds lists the kinds of entity that a node runs. The runtime, the labels of metrics, the golden file of stored
// messages and docs/chains.md are built from this list or tested against it.
package kinds

import (
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/activity"
	"github.com/atelier-run/atelier/entity/app"
	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/entity/certificates"
	"github.com/atelier-run/atelier/entity/client"
	"github.com/atelier-run/atelier/entity/computer"
	"github.com/atelier-run/atelier/entity/credential"
	"github.com/atelier-run/atelier/entity/device"
	"github.com/atelier-run/atelier/entity/email"
	"github.com/atelier-run/atelier/entity/grant"
	"github.com/atelier-run/atelier/entity/session"
	"github.com/atelier-run/atelier/entity/slug"
	"github.com/atelier-run/atelier/entity/subject"
	"github.com/atelier-run/atelier/entity/user"
	"github.com/atelier-run/atelier/entity/visit"
	"github.com/atelier-run/atelier/entity/workspace"
)

// All lists every kind.
var All = []entity.Kind{
	user.Kind, email.Kind, subject.Kind, credential.Kind, device.Kind, client.Kind, grant.Kind, slug.Kind,
	workspace.Kind, activity.Kind, computer.Kind, session.Kind, app.Kind,
	binding.Kind, visit.Kind, certificates.Kind,
}

// exposes has Exposes of the kinds that the edge uses, by the name of the kind.
var exposes = func() map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for _, k := range All {
		if k.Exposes != nil {
			all[k.Name] = k.Exposes
		}
	}
	return all
}()

// IsExposed reports whether an event of a kind changes what the edge serves, or whom. An unknown event of a kind that the edge uses may
// do so.
func IsExposed(kind, event string) bool {
	names, used := exposes[kind]
	isExposed, known := names[event]
	return used && (isExposed || !known)
}
