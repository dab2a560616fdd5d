package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/cluster"
	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/session"
	runtimev1 "github.com/atelier-run/atelier/messages/runtime/v1"
	sessionv1 "github.com/atelier-run/atelier/messages/session/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	workspacev1 "github.com/atelier-run/atelier/messages/workspace/v1"
	"github.com/atelier-run/atelier/persistence"
)

// A pastSession describes a session that has run one turn.
type pastSession struct {
	workspaceID, id, parentID, title string
	createdAt                        int64
	// end is the end of the turn; its ids are set by proposal.
	end      *sessionv1.EndTurn
	archived bool
}

// proposal returns the events and rows of the session, as its actor would have proposed them with each command.
func (p *pastSession) proposal() (persistence.Proposal, error) {
	identity := session.Identity(p.workspaceID, p.id)
	call := entity.Call{Now: time.UnixMilli(p.createdAt), Identity: identity, Role: workspacev1.Role_ROLE_OWNER}
	none := session.Zero(identity)
	state := none
	var all []sessionv1.Event
	send := func(sender *wirev1.Principal, c sessionv1.Command) error {
		call.Principal, call.Version = sender, uint64(len(all)+1)
		events, err := session.Decide(call, state, c)
		for _, e := range events {
			state = session.Evolve(state, e)
		}
		all = append(all, events...)
		return err
	}
	if err := send(member, &sessionv1.StartSession{
		ParentId: p.parentID, Mode: sessionv1.Mode_MODE_AUTO, Title: p.title, Prompt: &sessionv1.Input{Text: "Summarize the report."},
	}); err != nil {
		return persistence.Proposal{}, err
	}
	turn := state.GetTurn().GetId()
	if err := send(entity.Platform(), &sessionv1.ClaimTurn{TurnId: turn, RunId: "run"}); err != nil {
		return persistence.Proposal{}, err
	}
	end := proto.CloneOf(p.end)
	end.TurnId, end.RunId = turn, "run"
	if err := send(entity.Platform(), end); err != nil {
		return persistence.Proposal{}, err
	}
	if p.archived {
		if err := send(member, &sessionv1.ArchiveSession{Scope: sessionv1.ArchiveScope_ARCHIVE_SCOPE_GLOBAL, Archived: true}); err != nil {
			return persistence.Proposal{}, err
		}
	}
	out := persistence.Proposal{Stream: persistence.Stream(entity.KindSession + "/" + identity), Revision: 1}
	for _, e := range all {
		payload, err := proto.Marshal(e)
		if err != nil {
			return out, err
		}
		out.Events = append(out.Events, persistence.Event{Name: entity.MessageName(e), Payload: payload, At: call.Now, Actor: member.GetUserId()})
	}
	for _, row := range session.Rows(call, none, state, nil, all) {
		content, err := proto.Marshal(row.Message)
		if err != nil {
			return out, err
		}
		out.Entries = append(out.Entries, persistence.Change{Entry: persistence.Entry{
			Index: entity.ListIndex(row.List), Value: p.workspaceID + "\x00" + row.Key, Data: content,
		}})
	}
	for _, t := range session.Timers(state) {
		row, err := timerRow(identity, t)
		if err != nil {
			return out, err
		}
		out.Entries = append(out.Entries, row)
	}
	return out, nil
}

// timerRow returns the row of a session's timer, as the actors write it.
func timerRow(identity string, t entity.Timer) (persistence.Change, error) {
	command, err := proto.Marshal(t.Message)
	if err != nil {
		return persistence.Change{}, err
	}
	row, err := proto.Marshal(&runtimev1.Timer{
		Kind: entity.KindSession, Identity: identity, Id: t.ID, At: t.At,
		Command: &runtimev1.Payload{Name: entity.MessageName(t.Message), Encoded: command},
	})
	value := string(binary.BigEndian.AppendUint64(nil, uint64(t.At))) + entity.KindSession + "/" + identity + "\x00" + t.ID
	return persistence.Change{Entry: persistence.Entry{Index: "timer", Value: value, Data: row}}, err
}

// writeSessions appends sessions to the journal of a running router, without their actors: the actors would have written the same
// events and rows, but no actor is notified of timers.
func writeSessions(b testing.TB, journal persistence.Journal, router *cluster.Router, n int, describe func(int) *pastSession) {
	epochs := map[persistence.Partition]uint64{}
	ctx, cancel := context.WithCancel(context.Background())
	journal.Watch(ctx, func(n persistence.Notice) { epochs[n.Partition] = n.Epoch })
	cancel()
	slots := make(chan struct{}, 1024)
	var written sync.WaitGroup
	parallel(b, (n+999)/1000, 3, func(block int) error {
		for i := block * 1000; i < min(n, (block+1)*1000); i++ {
			s := describe(i)
			p, err := s.proposal()
			if err != nil {
				return err
			}
			p.Partition = router.Partition(s.workspaceID)
			p.Epoch = epochs[p.Partition]
			slots <- struct{}{}
			written.Add(1)
			journal.Append(p, func(r persistence.Result) {
				if r.Err != nil {
					b.Error(r.Err)
				}
				<-slots
				written.Done()
			})
		}
		return nil
	})
	written.Wait()
}

// endings are the ends of the turns of listed sessions, by the bucket in which a session then is.
var endings = map[string]*sessionv1.EndTurn{
	session.BucketDone: {Status: sessionv1.TurnStatus_TURN_STATUS_COMPLETE},
	session.BucketAsking: {Status: sessionv1.TurnStatus_TURN_STATUS_ASK, Ask: &sessionv1.Ask{
		Text: "Which quarter?", Options: []*sessionv1.Option{{Id: "1", Label: "The first"}, {Id: "2", Label: "The second"}},
	}},
	session.BucketScheduled: {Status: sessionv1.TurnStatus_TURN_STATUS_SLEEP, WakeAt: time.Now().Add(365 * 24 * time.Hour).UnixMilli()},
}

// firstCreated is the time at which the first listed session of a workspace was created; each was created a second after another.
const firstCreated = 1_700_000_000_000

// listed describes the session with a number in a workspace: in turn done, asking, scheduled, and done and archived.
func listed(workspaceID string, i int) *pastSession {
	bucket := []string{session.BucketDone, session.BucketAsking, session.BucketScheduled, session.BucketDone}[i%4]
	return &pastSession{
		workspaceID: workspaceID, id: sessionID(i), title: fmt.Sprint("Summary of Report ", i), createdAt: firstCreated + int64(i)*1000,
		end: endings[bucket], archived: i%4 == 3,
	}
}

// children is the number of the first child of the session 0 in a workspace.
const children = 1_000_000

func listedChild(workspaceID string, i int) *pastSession {
	s := listed(workspaceID, children+4*i)
	s.parentID = sessionID(0)
	return s
}
