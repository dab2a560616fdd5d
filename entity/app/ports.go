package app

import (
	"slices"
	"time"

	"github.com/atelier-run/atelier/entity"
	appv1 "github.com/atelier-run/atelier/messages/app/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
)

// The workspace reserves ports, so that no two apps have the same one, and the app decides when a reservation ends. It has the ports of
// its configurations, the offered ports, and the busy ports. The steps of an update with a port:
//
//  1. The request reserves the port with ReserveAppPort of the workspace. React of the workspace sends OfferPort to the app, which
//     records the port for OfferTime.
//  2. The request waits for that reaction and sends UpdateApp, which takes the port. If no request does, because the node has ended
//     or the update is refused, the timer ExpirePorts ends the offer.
//  3. When the configuration is reconciled, the executor names the ports on which processes of others still listen. They stay busy until
//     it has reported that these processes have ended (ReportFreePorts, or ReportStopped if the app does not run any more).
//  4. React of each event that ends the need for a port sends ReleaseAppPorts with all ports that the app still has, and the number of
//     the last reservation that it knows of. The workspace ends the other reservations up to that one. Offers arrive in the
//     order of their numbers, so that a later reservation is not ended by a decision that was made without it.

// OfferTime is the time in which an update must take a port that was reserved for it.
const OfferTime = time.Minute

// portsTimer is the ID of the timer that ends offers.
const portsTimer = "ports"

// errNotReserved refuses an update after its offer has expired.
var errNotReserved = &entity.Error{Code: entity.Unavailable, Message: "the reservation of the port has expired; repeat the request", RetryAfter: time.Second}

// usedPorts returns the ports of the configurations of the app.
func usedPorts(s *appv1.App) []uint32 {
	var all []uint32
	for _, r := range []*appv1.Runtime{s.GetAccepted(), s.GetRequested()} {
		if r != nil && !slices.Contains(all, r.GetPort()) {
			all = append(all, r.GetPort())
		}
	}
	return all
}

// hasPort reports whether the app has a reservation of a port.
func hasPort(s *appv1.App, port uint32) bool {
	return slices.Contains(usedPorts(s), port) || slices.Contains(furtherPorts(s.GetPorts()), port)
}

// furtherPorts returns the ports that an app has beside the ports of its configurations.
func furtherPorts(p *appv1.Ports) []uint32 {
	all := slices.Clone(p.GetBusy())
	for _, o := range p.GetOffered() {
		all = append(all, o.GetPort())
	}
	return all
}

// Timers returns the timer that ends the first offer.
func Timers(s *appv1.App) []entity.Timer {
	offered := s.GetPorts().GetOffered()
	if len(offered) == 0 {
		return nil
	}
	first := slices.MinFunc(offered, func(a, b *appv1.OfferedPort) int { return int(a.GetUntil() - b.GetUntil()) })
	return []entity.Timer{{ID: portsTimer, At: first.GetUntil(), Message: &appv1.ExpirePorts{}}}
}

// offerPort records a reservation. It has no effect if the app knows of it, or of a later one.
func offerPort(call entity.Call, s *appv1.App, c *appv1.OfferPort) []appv1.Event {
	if c.GetReservation() <= s.GetPortReservation() {
		return nil
	}
	return []appv1.Event{&appv1.PortOffered{
		Port:            &appv1.OfferedPort{Port: c.GetPort(), Until: call.Now.Add(OfferTime).UnixMilli()},
		PortReservation: c.GetReservation(),
	}}
}

// expirePorts ends the offers that have expired.
func expirePorts(call entity.Call, s *appv1.App) []appv1.Event {
	return releasePorts(s, &appv1.Ports{
		Offered: slices.DeleteFunc(slices.Clone(s.GetPorts().GetOffered()), func(o *appv1.OfferedPort) bool {
			return entity.HasPassed(o.GetUntil()-OfferTime.Milliseconds(), call.At(), OfferTime)
		}),
		Busy: s.GetPorts().GetBusy(),
	})
}

// reportFreePorts ends the reservations of ports that are busy no more. It has no effect if the report is about another generation: a later
// process may have made the port busy again.
func reportFreePorts(s *appv1.App, c *appv1.ReportFreePorts) []appv1.Event {
	if c.GetGeneration() != s.GetGeneration() {
		return nil
	}
	return releasePorts(s, &appv1.Ports{
		Offered: s.GetPorts().GetOffered(),
		Busy:    slices.DeleteFunc(slices.Clone(s.GetPorts().GetBusy()), func(port uint32) bool { return slices.Contains(c.GetPorts(), port) }),
	})
}

// releasePorts returns the event after which the app has fewer further ports; none if it has all of them still.
func releasePorts(s *appv1.App, remain *appv1.Ports) []appv1.Event {
	if len(furtherPorts(remain)) == len(furtherPorts(s.GetPorts())) {
		return nil
	}
	return []appv1.Event{&appv1.PortsReleased{Used: usedPorts(s), Ports: remain, PortReservation: s.GetPortReservation()}}
}

// busyPorts returns the further ports of an app after a report about its configuration, which runs on a port: the ports that the
// report names and the app has reserved.
func busyPorts(s *appv1.App, port uint32, reported []uint32) *appv1.Ports {
	var busy []uint32
	for _, p := range reported {
		if p != port && hasPort(s, p) && !slices.Contains(busy, p) {
			busy = append(busy, p)
		}
	}
	return portsOrNil(&appv1.Ports{Offered: s.GetPorts().GetOffered(), Busy: busy})
}

// portsOrNil returns nil if there are no ports, so that equal states are equal messages.
func portsOrNil(p *appv1.Ports) *appv1.Ports {
	if len(furtherPorts(p)) == 0 {
		return nil
	}
	return p
}

// portsAfterRequest returns the further ports of an app after a configuration with a port was requested. If it replaces a
// requested configuration, the port of the latter is busy: a process may be starting on it.
func portsAfterRequest(s *appv1.App, port uint32) *appv1.Ports {
	busy := slices.Clone(s.GetPorts().GetBusy())
	if r := s.GetRequested(); r != nil && r.GetPort() != port && r.GetPort() != s.GetAccepted().GetPort() && !slices.Contains(busy, r.GetPort()) {
		busy = append(busy, r.GetPort())
	}
	return portsOrNil(&appv1.Ports{Offered: withoutOffer(s.GetPorts(), port), Busy: busy})
}

// withOffer returns the further ports after an offer, which replaces an earlier one of the same port.
func withOffer(p *appv1.Ports, offer *appv1.OfferedPort) *appv1.Ports {
	return &appv1.Ports{Offered: append(withoutOffer(p, offer.GetPort()), offer), Busy: p.GetBusy()}
}

// withoutOffer returns the offers of all ports but one.
func withoutOffer(p *appv1.Ports, port uint32) []*appv1.OfferedPort {
	return slices.DeleteFunc(slices.Clone(p.GetOffered()), func(o *appv1.OfferedPort) bool { return o.GetPort() == port })
}

// releaseReaction returns the command that ends the reservations of an app except the reservations of ports that it still has; used
// begins with the port of a configuration.
func releaseReaction(workspaceID, appID string, used []uint32, p *appv1.Ports, reservation uint64) []entity.Reaction {
	return []entity.Reaction{entity.Send(entity.KindWorkspace, workspaceID, &workspacev1.ReleaseAppPorts{
		AppId: appID, Port: used[0], Reservation: reservation, Further: append(slices.Clone(used[1:]), furtherPorts(p)...),
	})}
}
