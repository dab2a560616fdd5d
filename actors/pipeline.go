package actors

import (
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// snapshotEvery is the number of events between two snapshots of a stream.
const snapshotEvery = 256

// A pipeline applies the commands of one stream. It decides each command against the state with all earlier decisions, whether
// they are durable or not, proposes the events and rows to the journal, and answers when the changes that the reply reports are
// durable. Many proposals are in flight at once, so that the journal's throughput limits an entity, and not the time of one
// sync.
//
// If a proposal fails, the journal accepts no later proposal of the pipeline: the requests of the later proposals are answered with errors, the
// state is dropped, and it is loaded again when no proposal is in flight.
//
// All methods except outcome run in the entity's actor. After the actor has called abandon, concludeOrphaned runs in the
// journal's goroutine. See "The way of a command" in the package comment.
type pipeline struct {
	term    *term
	kind    *kind
	stream  persistence.Stream
	machine machine
	effects *effects
	// wake sends the actor outcomesReady. It is safe for concurrent use.
	wake func()

	// loaded is set while the state and the version are the result of the journal and the proposals in flight.
	loaded            bool
	version, revision uint64
	// snapshotVersion is the version of the last snapshot.
	snapshotVersion uint64
	// proposed is the number of proposals. concluded is the number of proposals with a known outcome. A proposal's number is its ticket.
	proposed, concluded uint64
	// waiting has the answers that wait for outcomes, in the order of their tickets.
	waiting []pending
	// byID has the ticket of each command with an id that is in flight.
	byID     map[string]uint64
	marks    marks
	outcomes outcomes
	// durable is the last version that is known to be durable.
	durable uint64
	// held are the queries that wait for a change of the state, and decided the version at which they were last decided. self and
	// parent are the entity's actor and its supervisor; see held.go.
	held         map[*request]struct{}
	decided      uint64
	self, parent *actor.PID
	// concluding serializes the calls of concludeOrphaned.
	concluding sync.Mutex
}

// A pending is an answer that waits for the outcome of its own proposal or, if it changes nothing, for the outcome of the last
// proposal before it.
type pending struct {
	ticket   uint64
	request  *request
	decision decision
	err      error
	version  uint64
	snapshot proto.Message
	// then, if set, continues with the request instead of an answer; see afterDurable.
	then func()
	// proposed is set if ticket is the proposal of this answer, and not the proposal of an earlier answer.
	proposed bool
}

// outcomes collects the outcomes that the journal delivers in its goroutine. A refusal may arrive before the outcomes of
// earlier proposals.
type outcomes struct {
	mu sync.Mutex
	// upTo is the last ticket before which no outcome is missing; early has the later tickets with an outcome.
	upTo  uint64
	early map[uint64]struct{}
	// failures has the errors of failed proposals until their requests are answered.
	failures map[uint64]error
	// posted is set from the call of wake until collect.
	posted bool
	// orphaned is set when the actor has ended; the goroutine that delivers an outcome then answers the requests.
	orphaned bool
}

// add records an outcome, and reports whether processOutcomes must be called: whether more outcomes are complete and no call is
// on its way.
func (o *outcomes) add(ticket uint64, err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		if o.failures == nil {
			o.failures = map[uint64]error{}
		}
		o.failures[ticket] = err
	}
	if ticket != o.upTo+1 {
		if o.early == nil {
			o.early = map[uint64]struct{}{}
		}
		o.early[ticket] = struct{}{}
		return false
	}
	o.upTo++
	for len(o.early) > 0 {
		if _, ok := o.early[o.upTo+1]; !ok {
			break
		}
		o.upTo++
		delete(o.early, o.upTo)
	}
	wake := !o.posted || o.orphaned
	o.posted = true
	return wake
}

// markOrphaned makes the goroutines that deliver further outcomes answer the requests.
func (o *outcomes) markOrphaned() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.orphaned = true
}

func (o *outcomes) isOrphaned() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.orphaned
}

// collect returns upTo (outcomes.upTo) and the errors of the failed proposals. It returns the same errors
// again until forget, so that a panic between the two does not turn a failed proposal into a successful one.
func (o *outcomes) collect() (upTo uint64, failures map[uint64]error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.posted = false
	return o.upTo, maps.Clone(o.failures)
}

// forget drops the errors of the proposals up to a ticket. The caller has answered the requests of these proposals.
func (o *outcomes) forget(upTo uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.failures, func(ticket uint64, _ error) bool { return ticket <= upTo })
}

// outcome records the outcome of a proposal. It runs in the journal's goroutine.
func (p *pipeline) outcome(ticket uint64, r persistence.Result) {
	if r.Err != nil {
		p.kind.metrics.appendFailures.Inc()
	}
	if !p.outcomes.add(ticket, r.Err) {
		return
	}
	if p.outcomes.isOrphaned() {
		p.concludeOrphaned()
		return
	}
	p.wake()
}

// ensureLoaded loads the state from the journal, unless it is loaded. It returns ErrRetry while earlier proposals are in
// flight, because the stream may still change. Proposals of a failed predecessor of this actor may be in flight, too: they advance the revision
// of the stream, so that a decision without them is refused as a conflict. All other errors are errors of the journal.
func (p *pipeline) ensureLoaded() error {
	if p.loaded {
		return nil
	}
	if p.concluded != p.proposed {
		return ErrRetry
	}
	v, err := p.term.system.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	if p.revision, err = v.Revision(p.term.partition, p.stream); err != nil {
		return err
	}
	if p.version, p.snapshotVersion, err = p.machine.load(v, p.term.partition, p.stream); err != nil {
		return err
	}
	p.loaded, p.durable, p.decided = true, p.version, p.version
	p.byID, p.marks = map[string]uint64{}, marks{}
	return nil
}

// handle applies a command, unless it was applied before or is a query that waits: steps 4 to 6 of "The way of a command" in the
// package comment.
func (p *pipeline) handle(r *request) {
	if err := p.ensureLoaded(); err != nil {
		p.fail(r, err)
		return
	}
	if p.answerRepeated(r) {
		return
	}
	call := p.callOf(r)
	if p.mustWait(call, r) {
		p.hold(r)
		return
	}
	p.apply(call, r)
}

func (p *pipeline) callOf(r *request) entity.Call {
	return entity.Call{
		Now: now(p.term.system.clock), Identity: r.command.Identity, Principal: r.command.Principal, Version: p.version + 1, Role: r.role,
	}
}

// apply decides a command and proposes its changes, and answers it or enqueues the answer.
func (p *pipeline) apply(call entity.Call, r *request) {
	d, err := p.decide(call, r.command)
	next := pending{ticket: p.proposed, request: r, decision: d, err: err}
	if source := r.command.Source; source != nil && (err == nil || entity.IsRefusal(err)) {
		next.decision.changes = append(next.decision.changes, p.advanceMark(source, err != nil)...)
	}
	if !next.decision.empty() {
		p.propose(&next)
	}
	if !r.wasHeld {
		p.kind.metrics.decided(r.arrived)
	}
	if next.ticket == p.concluded {
		p.answer(next)
		return
	}
	p.waiting = append(p.waiting, next)
}

// decide decides a command of the kind, or DeclareEffects, the command of the runtime that writes missing rows.
func (p *pipeline) decide(call entity.Call, c entity.Command) (decision, error) {
	if !isDeclareEffects(c.Message) {
		return p.machine.decide(call, c.Message, func() error { return p.term.system.admit(c) })
	}
	if err := entity.PlatformOnly().Authorize(call.Principal, func(need entity.Need) error {
		return p.machine.check(call, need)
	}); err != nil {
		return decision{}, err
	}
	rows, err := p.machine.declare(call.At())
	return decision{changes: rows, reply: &wirev1.Done{}}, err
}

// afterDurable waits until every proposal that the state of the decision depends on is durable. It then calls then, or answers with err if err is
// a refusal. If one of these proposals fails, the request is answered with ErrRetry.
func (p *pipeline) afterDurable(r *request, err error, then func()) {
	if err != nil && !entity.IsRefusal(err) {
		p.fail(r, err)
		return
	}
	next := pending{ticket: p.proposed, request: r, err: err, then: then}
	if next.ticket == p.concluded {
		p.answer(next)
		return
	}
	p.waiting = append(p.waiting, next)
}

// propose appends the events and rows of a decision to the journal, with the reply of a command that has an id, and advances
// version and revision. It also takes a snapshot if a snapshot is due. The snapshot is saved when the events are durable.
func (p *pipeline) propose(next *pending) {
	p.proposed++
	ticket := p.proposed
	next.ticket, next.proposed = ticket, true
	id := next.request.command.ID
	for i := range next.decision.events {
		next.decision.events[i].Version = p.version + uint64(i) + 1
		next.decision.events[i].CommandID = id
		next.decision.events[i].RequestID = next.request.command.RequestID
	}
	if id != "" {
		p.byID[id] = ticket
		next.decision.changes = append(next.decision.changes, persistence.Change{Entry: persistence.Entry{
			Index: commandIndex, Value: p.commandValue(id), Data: encodeReply(next.decision.reply, p.term.system.clock()),
		}})
	}
	proposal := persistence.Proposal{
		Partition: p.term.partition, Stream: p.stream, Expected: p.version, Revision: p.revision + 1, Epoch: p.term.epoch,
		Events: next.decision.events, Entries: next.decision.changes, Erase: next.decision.erases,
		Urgency: p.term.system.urgencyOf(next),
	}
	p.version += uint64(len(next.decision.events))
	p.revision++
	next.version = p.version
	if p.version-p.snapshotVersion >= snapshotEvery {
		next.snapshot = p.machine.snapshot()
		p.snapshotVersion = p.version
	}
	changesEffects, proposed := hasEffects(proposal.Entries), time.Now()
	p.term.system.journal.Append(proposal, func(result persistence.Result) {
		p.kind.metrics.committed(proposed)
		if changesEffects {
			p.effects.committed(proposal.Entries, result.Err)
		}
		p.outcome(ticket, result)
	})
}

// processOutcomes answers the requests with known outcomes, in the order of their tickets: step 7 of "The way of a command" in
// the package comment.
func (p *pipeline) processOutcomes() {
	upTo, failures := p.outcomes.collect()
	p.concluded = upTo
	n := 0
	for n < len(p.waiting) && p.waiting[n].ticket <= upTo {
		p.conclude(p.waiting[n], failures[p.waiting[n].ticket])
		n++
	}
	clear(p.waiting[:n])
	p.waiting = p.waiting[n:]
	if len(p.waiting) == 0 {
		p.waiting = nil
	}
	p.outcomes.forget(upTo)
}

// conclude answers one waiting request. After a failed proposal, the journal accepts no later proposal, and decisions without changes were
// made on a state that never became durable.
func (p *pipeline) conclude(next pending, failure error) {
	if id := next.request.command.ID; id != "" && p.byID[id] == next.ticket {
		delete(p.byID, id)
	}
	if failure != nil && p.loaded {
		p.loaded = false
		p.term.system.log.Warn("a proposal failed; the state is loaded from the journal again", slog.String("stream", string(p.stream)), slog.Any("error", failure))
	}
	switch {
	case !next.proposed && !p.loaded:
		p.fail(next.request, ErrRetry)
	case failure != nil:
		p.fail(next.request, failure)
	default:
		if next.proposed {
			p.durable = next.version
			p.notify(next)
		}
		p.answer(next)
	}
}

// answer answers a request, or calls its continuation, when its decision is durable, and saves the snapshot.
func (p *pipeline) answer(next pending) {
	if next.err == nil {
		p.machine.committed(next.decision)
	}
	if next.snapshot != nil {
		p.saveSnapshot(next)
	}
	if next.then != nil && next.err == nil {
		next.then()
		return
	}
	next.request.answer(next.decision.reply, next.err)
}

// saveSnapshot saves a snapshot. It does not wait: a snapshot only shortens later loads.
func (p *pipeline) saveSnapshot(next pending) {
	state, err := encodeSnapshot(p.kind.Version, next.snapshot)
	if err != nil {
		p.term.system.log.Error("cannot encode a snapshot", slog.String("stream", string(p.stream)), slog.Any("error", err))
		return
	}
	p.term.system.journal.SaveSnapshot(p.term.partition, p.term.epoch, p.stream, persistence.Snapshot{Version: next.version, State: state})
}

// abandon ends the pipeline when its actor ends. Requests in flight are answered when their outcome is known, since their
// changes may be durable. No further command may be handled.
func (p *pipeline) abandon() {
	p.endHeld()
	p.outcomes.markOrphaned()
	p.concludeOrphaned()
}

// concludeOrphaned answers the requests with known outcomes after the actor has ended. It calls no continuation and does not
// touch the machine.
func (p *pipeline) concludeOrphaned() {
	p.concluding.Lock()
	defer p.concluding.Unlock()
	upTo, failures := p.outcomes.collect()
	p.concluded = upTo
	for len(p.waiting) > 0 && p.waiting[0].ticket <= upTo {
		next := p.waiting[0]
		p.waiting = p.waiting[1:]
		failure := failures[next.ticket]
		p.loaded = p.loaded && failure == nil
		switch {
		case next.then != nil && next.err == nil, !next.proposed && !p.loaded:
			p.fail(next.request, ErrRetry)
		case failure != nil:
			p.fail(next.request, failure)
		default:
			p.notify(next)
			next.request.answer(next.decision.reply, next.err)
		}
	}
	p.outcomes.forget(upTo)
}

// notify passes events that are durable to Options.Observe.
func (p *pipeline) notify(next pending) {
	if observe := p.term.system.observe; observe != nil && len(next.decision.events) > 0 {
		observe(p.kind.Name, next.request.command.Identity, next.decision.events)
	}
}

// fail answers a request with the error of a command that was not applied, or was perhaps applied. Refusals reach the caller as
// they are; after an unknown outcome only a command with an id or source may be sent again.
func (p *pipeline) fail(r *request, err error) {
	var refusal *entity.Error
	var conflict *persistence.ConflictError
	var notLeader *persistence.NotLeaderError
	switch {
	case errors.As(err, &refusal), errors.Is(err, ErrRetry):
		r.answer(nil, err)
	case errors.As(err, &conflict), errors.As(err, &notLeader):
		r.answer(nil, ErrRetry)
	case errors.Is(err, persistence.ErrUnknown) && (r.command.ID != "" || r.command.Source != nil):
		r.answer(nil, ErrRetry)
	case errors.Is(err, persistence.ErrUnknown):
		r.answer(nil, unavailable("the outcome of the command is unknown; read the state before you repeat it"))
	case errors.Is(err, persistence.ErrRefused), errors.Is(err, persistence.ErrClosed):
		r.answer(nil, unavailable("the journal accepts no writes at the moment; try again"))
	default:
		p.term.system.log.Error("cannot read an entity", slog.String("stream", string(p.stream)), slog.Any("error", err))
		r.answer(nil, unavailable("the entity cannot be read at the moment; try again"))
	}
}

// isBlank reports whether nothing was ever written to the stream.
func (p *pipeline) isBlank() bool { return p.loaded && p.version == 0 && p.revision == 0 }

// isIdle reports whether no request waits and no proposal is in flight.
func (p *pipeline) isIdle() bool { return len(p.waiting) == 0 && p.proposed == p.concluded }
