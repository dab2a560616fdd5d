package app

import (
	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
)

// Evolve returns the state after an event. It shares unchanged values with s.
func Evolve(s *appv1.App, e appv1.Event) *appv1.App {
	next := entity.ShallowCopy(s)
	next.Revision++
	switch e := e.(type) {
	case *appv1.AppRegistered:
		applyRegistered(next, e)
	case *appv1.MetadataChanged:
		next.Name, next.Icon, next.UpdatedAt = e.GetName(), e.GetIcon(), e.GetAt()
	case *appv1.RuntimeRequested:
		next.Requested, next.Generation, next.RuntimeStatus = e.GetRuntime(), e.GetGeneration(), reconciling
		next.ReconciliationError, next.Asleep, next.UpdatedAt = "", false, e.GetAt()
		next.PortReservation = e.GetPortReservation()
		next.Ports = portsAfterRequest(s, e.GetRuntime().GetPort())
	case *appv1.RuntimeReconciled:
		next.Accepted, next.Requested, next.AcceptedGeneration = s.GetRequested(), nil, e.GetGeneration()
		next.RuntimeStatus, next.ReconciliationError, next.UpdatedAt = reconciled, "", e.GetAt()
		next.Ports = e.GetPorts()
	case *appv1.RuntimeFailed:
		next.RuntimeStatus, next.ReconciliationError, next.UpdatedAt = failed, e.GetReason(), e.GetAt()
		next.Ports = e.GetPorts()
		if s.GetAccepted() != nil {
			next.Requested = nil
		}
	case *appv1.PortOffered:
		next.Ports, next.PortReservation = withOffer(s.GetPorts(), e.GetPort()), e.GetPortReservation()
	case *appv1.PortsReleased:
		next.Ports = portsOrNil(e.GetPorts())
	case *appv1.KeyIssued:
		next.Key, next.LastKey = e.GetKey(), e.GetKey().GetNumber()
	case *appv1.KeyRevoked:
		next.Key = nil
	case *appv1.InvitingEnded:
		// The workspace has the invitations.
	case *appv1.VisibilityChanged:
		next.Visibility, next.UpdatedAt = e.GetVisibility(), e.GetAt()
	case *appv1.RuntimeSettingsChanged:
		next.RuntimeSettings, next.UpdatedAt = e.GetSettings(), e.GetAt()
	case *appv1.AppDisabled:
		next.DisabledAt, next.DisabledByUserId, next.Asleep, next.UpdatedAt = e.GetAt(), e.GetUserId(), false, e.GetAt()
	case *appv1.AppEnabled:
		next.DisabledAt, next.DisabledByUserId, next.UpdatedAt = 0, "", e.GetAt()
	case *appv1.AppHalted:
		next.Halted, next.Asleep = e.GetHalted(), false
	case *appv1.AppSlept:
		next.Asleep = true
	case *appv1.AppWoken:
		next.Asleep = false
	case *appv1.AppCrashed:
		next.Crashes = withCrash(s.GetCrashes(), e.GetCrash())
	case *appv1.AnchorFollowed:
		next.Path, next.FolderState, next.AnchorVersion, next.UpdatedAt = e.GetPath(), e.GetState(), e.GetVersion(), e.GetAt()
		if e.GetState() != appv1.FolderState_FOLDER_STATE_ACTIVE {
			next.Asleep = false
		}
	case *appv1.RemovalRequested:
		next.Removal, next.Asleep = e.GetRemoval(), false
	case *appv1.RemovalFailed:
		next.Removal = nil
	case *appv1.AppRemoved:
		// Only the fact that the app was removed remains.
		return &appv1.App{Id: s.GetId(), WorkspaceId: s.GetWorkspaceId(), Removed: true, LastKey: s.GetLastKey(), Revision: next.GetRevision()}
	case *appv1.DomainRequested:
		next.Domain = &appv1.Domain{
			Id: e.GetDomainId(), Hostname: e.GetHostname(), Status: appv1.DomainStatus_DOMAIN_STATUS_PENDING, CreatedAt: e.GetAt(), UpdatedAt: e.GetAt(),
		}
		next.Refusal, next.DomainAuthor = nil, e.GetAuthor()
	case *appv1.DomainReported:
		next.Domain = e.GetDomain()
	case *appv1.DomainRecheckRequested:
		next.Domain = entity.ShallowCopy(s.GetDomain())
		next.Domain.RetryRequired, next.Domain.Checking = false, true
	case *appv1.DomainRemovalRequested:
		next.Domain = entity.ShallowCopy(s.GetDomain())
		next.Domain.Status, next.Domain.Checking, next.Domain.UpdatedAt = removing, false, e.GetAt()
	case *appv1.DomainRefused:
		next.Domain, next.Refusal = nil, e.GetRefusal()
	case *appv1.DomainReleased:
		next.Domain = nil
	}
	return next
}

func applyRegistered(next *appv1.App, e *appv1.AppRegistered) {
	r := e.GetRegistration()
	next.AnchorId, next.Path, next.FolderState = r.GetAnchorId(), r.GetPath(), appv1.FolderState_FOLDER_STATE_ACTIVE
	next.Slug, next.Name, next.Icon, next.Visibility = r.GetSlug(), r.GetName(), r.GetIcon(), appv1.Visibility_VISIBILITY_FOLDER
	next.CreatedByUserId, next.CreatedAt, next.UpdatedAt = r.GetCreatedByUserId(), e.GetAt(), e.GetAt()
	next.Origin, next.Position, next.AnchorVersion = r.GetOrigin(), r.GetPosition(), r.GetPosition()
	next.Requested, next.Generation, next.RuntimeStatus = r.GetRuntime(), 1, reconciling
	// The workspace has reserved the port with the event that registered the app.
	next.PortReservation = r.GetPosition()
}

// withCrash returns the last MaxCrashes crashes, newest last.
func withCrash(all []*appv1.Crash, crash *appv1.Crash) []*appv1.Crash {
	all = all[max(len(all)-MaxCrashes+1, 0):]
	return append(append(make([]*appv1.Crash, 0, len(all)+1), all...), crash)
}
