package app

import (
	"cmp"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/audit"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	auditv1 "github.com/atelier-run/atelier/messages/audit/v1"
)

// The names of the lists of a workspace's apps.
const (
	// List has the apps in the order of registration. Its rows are of the type appv1.App, without keys and crashes.
	List = "apps"
	// DomainList has an appv1.DomainRow for each app with a domain, in the same order.
	DomainList = "app.domains"
)

// Lists returns the lists, which are read through the workspace.
func Lists() map[string]entity.List {
	need := entity.Reads(entity.Apps)
	return map[string]entity.List{
		List:       {Need: need, Visible: matches},
		DomainList: {Need: need},
	}
}

// The values of appv1.Filter.Scope.
const (
	ScopeSubtree  = "subtree"
	ScopeChildren = "children"
	ScopeSelf     = "self"
)

var errFilter = entity.Errorf(entity.InvalidRequest, "the filter is invalid")

// matches reports whether an app matches an appv1.Filter.
func matches(_ entity.Call, row, filter []byte) (bool, error) {
	var f appv1.Filter
	var s appv1.App
	if proto.Unmarshal(filter, &f) != nil {
		return false, errFilter
	}
	if err := proto.Unmarshal(row, &s); err != nil {
		return false, err
	}
	switch {
	case f.GetId() != "" && f.GetId() != s.GetId(), f.Containing != nil && !isAtOrBelow(f.GetContaining(), s.GetPath()):
		return false, nil
	case f.Path == nil:
		return true, nil
	}
	parent := ""
	if i := strings.LastIndexByte(s.GetPath(), '/'); i >= 0 {
		parent = s.GetPath()[:i]
	}
	switch f.GetScope() {
	case ScopeSelf:
		return s.GetPath() == f.GetPath(), nil
	case ScopeChildren:
		return parent == f.GetPath(), nil
	case ScopeSubtree:
		return isAtOrBelow(s.GetPath(), f.GetPath()), nil
	default:
		return false, errFilter
	}
}

// isAtOrBelow reports whether a path is folder itself or lies below it. The empty folder is the root.
func isAtOrBelow(path, folder string) bool {
	return folder == "" || path == folder || strings.HasPrefix(path, folder+"/")
}

// Rows returns the changes of the lists that follow from a command.
func Rows(call entity.Call, before, after *appv1.App, c appv1.Command, events []appv1.Event) []entity.Row {
	if len(events) == 0 {
		return nil
	}
	position := entity.AscendingKey(max(before.GetPosition(), after.GetPosition()))
	rows := append(changedRow(List, position, rowOf(before), rowOf(after)), changedRow(DomainList, position, domainRowOf(before), domainRowOf(after))...)
	return append(rows, auditRows(call, before, after, c, events)...)
}

// changedRow returns the change of one row; none if it is the same before and after. nil: there is no row.
func changedRow(list, key string, before, after proto.Message) []entity.Row {
	switch {
	case after != nil && (before == nil || !proto.Equal(before, after)):
		return []entity.Row{{List: list, Key: key, Message: after}}
	case after == nil && before != nil:
		return []entity.Row{{List: list, Key: key}}
	default:
		return nil
	}
}

// rowOf returns the row of an app in List. It changes only with the fields that the list shows.
func rowOf(s *appv1.App) proto.Message {
	if !isRegistered(s) {
		return nil
	}
	row := entity.ShallowCopy(s)
	row.Key, row.LastKey, row.Crashes, row.Refusal, row.DomainAuthor, row.Revision, row.AnchorVersion = nil, 0, nil, nil, nil, 0, 0
	row.Ports, row.PortReservation, row.RuntimeSettings = nil, 0, nil
	return row
}

func domainRowOf(s *appv1.App) proto.Message {
	if !isRegistered(s) || !s.GetDomain().GetClaimed() {
		return nil
	}
	return &appv1.DomainRow{Domain: s.GetDomain(), AppId: s.GetId(), Slug: s.GetSlug(), Name: s.GetName()}
}

// auditRows returns the rows of the audit log of the workspace. An update has one, whatever it changes, as has
// a change of the runtime's settings; the workspace has logged the registration. The removals of the app and of its domain are logged for the requester.
func auditRows(call entity.Call, before, after *appv1.App, c appv1.Command, events []appv1.Event) []entity.Row {
	var rows []entity.Row
	add := func(index int, part, name string, p *auditv1.Provenance, author *appv1.Author) {
		e := audit.NewEvent(call, name, describe(before, after, p))
		if author != nil {
			e.ActorId, e.Provenance.Actor = author.GetUserId(), cmp.Or(author.GetImpersonatorId(), author.GetCredential())
		}
		rows = append(rows, audit.NewRow(entity.KindApp+"/"+after.GetId()+part, call, index, e))
	}
	addUpdate := func() {
		add(0, "", "app.updated", &auditv1.Provenance{Scopes: configured(after).GetApiScopes()}, nil)
	}
	if _, updates := c.(*appv1.UpdateApp); updates {
		addUpdate()
		return rows
	}
	for i, event := range events {
		switch e := event.(type) {
		case *appv1.RuntimeSettingsChanged:
			addUpdate()
		case *appv1.VisibilityChanged:
			add(i, "", "app.visibility_changed", &auditv1.Provenance{Visibility: VisibilityNames[e.GetVisibility()]}, nil)
		case *appv1.AppDisabled:
			add(i, "", "app.disabled", nil, nil)
		case *appv1.AppEnabled:
			add(i, "", "app.enabled", nil, nil)
		case *appv1.AppRemoved:
			add(i, "", "app.deleted", nil, before.GetRemoval().GetAuthor())
		case *appv1.DomainReported:
			if !before.GetDomain().GetClaimed() && before.GetDomain().GetStatus() != removing {
				add(i, "/claim", "domain.attached", &auditv1.Provenance{Name: e.GetDomain().GetHostname()}, before.GetDomainAuthor())
			}
			if e.GetDomain().GetStatus() != before.GetDomain().GetStatus() {
				addDomainStatus(add, i, e.GetDomain())
			}
		case *appv1.DomainRemovalRequested:
			if before.GetDomain().GetClaimed() {
				add(i, "", "domain.removed", &auditv1.Provenance{Name: e.GetHostname()}, before.GetRemoval().GetAuthor())
			}
		case *appv1.DomainReleased:
			if before.GetDomain().GetStatus() != removing {
				add(i, "", "domain.removed", &auditv1.Provenance{Name: before.GetDomain().GetHostname()}, nil)
			}
		case *appv1.AppRegistered, *appv1.MetadataChanged, *appv1.RuntimeRequested, *appv1.RuntimeReconciled, *appv1.RuntimeFailed,
			*appv1.PortOffered, *appv1.PortsReleased, *appv1.KeyIssued, *appv1.KeyRevoked, *appv1.InvitingEnded, *appv1.AppHalted, *appv1.AppSlept, *appv1.AppWoken, *appv1.AppCrashed, *appv1.AnchorFollowed,
			*appv1.RemovalRequested, *appv1.RemovalFailed, *appv1.DomainRequested, *appv1.DomainRecheckRequested, *appv1.DomainRefused:
		}
	}
	return rows
}

// addDomainStatus adds the row for a domain that has become active or failed.
func addDomainStatus(add func(int, string, string, *auditv1.Provenance, *appv1.Author), index int, d *appv1.Domain) {
	switch d.GetStatus() {
	case appv1.DomainStatus_DOMAIN_STATUS_ACTIVE:
		add(index, "", "domain.activated", &auditv1.Provenance{Name: d.GetHostname()}, nil)
	case appv1.DomainStatus_DOMAIN_STATUS_FAILED:
		add(index, "", "domain.failed", &auditv1.Provenance{Name: d.GetHostname(), Reason: d.GetLastError()}, nil)
	default: // the other changes are steps on the way
	}
}

// VisibilityNames has the names of visibilities in the API.
var VisibilityNames = map[appv1.Visibility]string{
	appv1.Visibility_VISIBILITY_FOLDER: "folder",
	appv1.Visibility_VISIBILITY_PUBLIC: "public",
}

// describe adds the app to the provenance of an audit event.
func describe(before, after *appv1.App, p *auditv1.Provenance) *auditv1.Provenance {
	if p == nil {
		p = &auditv1.Provenance{}
	}
	s := after
	if !isRegistered(after) {
		s = before
	}
	p.AppId, p.AppSlug, p.AnchorId, p.Path = s.GetId(), s.GetSlug(), s.GetAnchorId(), s.GetPath()
	return p
}
