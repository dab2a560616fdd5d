package actors

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
	"github.com/atelier-run/atelier/persistence"
)

// commandIndex remembers the replies of commands that carried an id.
const commandIndex = "command"

// snapshotEvery is how many events a stream takes on before its state is kept again.
const snapshotEvery = 256

// pipeline carries commands of one stream out: it decides against the state as it will be, proposes what follows to the
// journal, and holds every reply back until what the reply tells of is durable. Many proposals are under way at once, so
// that an entity is limited by the journal and not by one sync a command.
//
// A proposal that fails takes everything behind it along: the replies become errors, the state is dropped, and once
// nothing is under way any more the state is learnt again from the journal.
//
// All methods but outcome run in the entity's actor, until that ends with abandon.
type pipeline struct {
	term    *term
	kind    *kind
	stream  persistence.Stream
	machine machine
	effects *effects
	// wake makes the actor call settle.
	wake func()

	// known tells whether state and version are those of the journal and what is under way.
	known             bool
	version, revision uint64
	// kept is the version of the last snapshot.
	kept uint64
	// proposed and settled count proposals: those made, and those whose outcome is known.
	proposed, settled uint64
	waiting           []pending
	byID              map[string]uint64
	marks             marks
	finished          inbox
	// concluding serializes the goroutines that answer requests after the actor has ended.
	concluding sync.Mutex
}

// pending is a decision whose outcome is awaited, or an answer that waits behind one.
type pending struct {
	ticket   uint64
	request  *request
	decision decision
	err      error
	version  uint64
	snapshot proto.Message
	// then, where set, goes on with the request in place of an answer; see after.
	then func()
	// proposed tells that the answer became a proposal of its own, and not one that waits behind others'.
	proposed bool
}

// inbox takes the journal's outcomes, which come from its goroutine. A refusal may come ahead of its turn.
type inbox struct {
	mu       sync.Mutex
	upTo     uint64
	early    map[uint64]struct{}
	failures map[uint64]error
	posted   bool
	// orphaned: the actor has ended, and outcomes are concluded in the goroutine that brings them.
	orphaned bool
}

// take notes an outcome, and tells whether the actor is to be woken for it.
func (b *inbox) take(ticket uint64, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.failures == nil {
			b.failures = map[uint64]error{}
		}
		b.failures[ticket] = err
	}
	if ticket != b.upTo+1 {
		if b.early == nil {
			b.early = map[uint64]struct{}{}
		}
		b.early[ticket] = struct{}{}
		return false
	}
	b.upTo++
	for len(b.early) > 0 {
		if _, ok := b.early[b.upTo+1]; !ok {
			break
		}
		b.upTo++
		delete(b.early, b.upTo)
	}
	wake := !b.posted || b.orphaned
	b.posted = true
	return wake
}

// orphan makes the goroutine that brings an outcome conclude it, from now on.
func (b *inbox) orphan() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orphaned = true
}

func (b *inbox) isOrphaned() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.orphaned
}

// collect is up to where all outcomes are known, and those among them that are failures.
func (b *inbox) collect() (upTo uint64, failures map[uint64]error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.posted = false
	upTo, failures = b.upTo, b.failures
	b.failures = nil
	for ticket, err := range failures {
		if ticket > upTo {
			if b.failures == nil {
				b.failures = map[uint64]error{}
			}
			b.failures[ticket] = err
		}
	}
	return upTo, failures
}

// outcome runs in the journal's goroutine.
func (p *pipeline) outcome(ticket uint64, r persistence.Result) {
	if r.Err != nil {
		p.kind.metrics.appendFailures.Inc()
	}
	if !p.finished.take(ticket, r.Err) {
		return
	}
	if p.finished.isOrphaned() {
		p.conclusion()
		return
	}
	p.wake()
}

// learn makes the state known. While earlier proposals are under way the journal may still move, so it refuses. Those of
// an actor that failed before this one move the stream's revision, and make what was decided without them a conflict.
func (p *pipeline) learn() error {
	if p.known {
		return nil
	}
	if p.settled != p.proposed {
		return ErrRetry
	}
	v, err := p.term.node.journal.View()
	if err != nil {
		return err
	}
	defer v.Close()
	if p.revision, err = v.Revision(p.term.partition, p.stream); err != nil {
		return err
	}
	if p.version, p.kept, err = p.machine.recall(v, p.term.partition, p.stream); err != nil {
		return err
	}
	p.known = true
	p.byID, p.marks = map[string]uint64{}, marks{}
	return nil
}

// handle carries a command out.
func (p *pipeline) handle(r *request) {
	if err := p.learn(); err != nil {
		p.refuse(r, err)
		return
	}
	if p.repeated(r) {
		return
	}
	call := entity.Call{Now: now(p.term.node.clock), Identity: r.command.Identity, Principal: r.command.Principal, Version: p.version + 1}
	d, err := p.decide(call, r.command.Message)
	next := pending{ticket: p.proposed, request: r, decision: d, err: err}
	if source := r.command.Source; source != nil && (err == nil || entity.IsRefusal(err)) {
		next.decision.changes = append(next.decision.changes, p.mark(source, err != nil)...)
	}
	if !next.decision.empty() {
		p.propose(&next)
	}
	p.kind.metrics.decided(r.arrived)
	if next.ticket == p.settled {
		p.finish(next)
		return
	}
	p.waiting = append(p.waiting, next)
}

// decide decides a command of the kind, or the runtime's own command to write missing rows.
func (p *pipeline) decide(call entity.Call, command proto.Message) (decision, error) {
	if !isDeclaration(command) {
		return p.machine.decide(call, command)
	}
	if err := entity.PlatformOnly().Authorize(call.Principal, func(need entity.Need) error {
		return p.machine.check(call, need)
	}); err != nil {
		return decision{}, err
	}
	rows, err := p.machine.declare(call.At())
	return decision{changes: rows, reply: &wirev1.Done{}}, err
}

// after goes on with a request that the state allows (err is nil) or refuses it, once everything that the state rests on
// is durable.
func (p *pipeline) after(r *request, err error, then func()) {
	if err != nil && !entity.IsRefusal(err) {
		p.refuse(r, err)
		return
	}
	next := pending{ticket: p.proposed, request: r, err: err, then: then}
	if next.ticket == p.settled {
		p.finish(next)
		return
	}
	p.waiting = append(p.waiting, next)
}

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
			Index: commandIndex, Value: p.commandValue(id), Data: encodeReply(next.decision.reply, p.term.node.clock()),
		}})
	}
	proposal := persistence.Proposal{
		Partition: p.term.partition, Stream: p.stream, Expected: p.version, Revision: p.revision + 1, Epoch: p.term.epoch,
		Events: next.decision.events, Entries: next.decision.changes,
	}
	p.version += uint64(len(next.decision.events))
	p.revision++
	next.version = p.version
	if p.version-p.kept >= snapshotEvery {
		next.snapshot = p.machine.snapshot()
		p.kept = p.version
	}
	tells, proposed := hasEffects(proposal.Entries), time.Now()
	p.term.node.journal.Append(proposal, func(result persistence.Result) {
		p.kind.metrics.committed(proposed)
		if tells {
			p.effects.committed(proposal.Entries)
		}
		p.outcome(ticket, result)
	})
}

func (p *pipeline) commandValue(id string) string { return string(p.stream) + "\x00" + id }

// repeated answers a command whose id or source the stream has carried out, or is carrying out.
func (p *pipeline) repeated(r *request) bool {
	if r.command.Source != nil {
		return p.marked(r)
	}
	id := r.command.ID
	if id == "" {
		return false
	}
	if ticket, ok := p.byID[id]; ok && ticket > p.settled {
		r.answer(nil, ErrRetry) // its outcome will be in the journal by then
		return true
	}
	v, err := p.term.node.journal.View()
	if err != nil {
		p.refuse(r, err)
		return true
	}
	defer v.Close()
	data, done, err := v.Lookup(p.term.partition, commandIndex, p.commandValue(id), 0)
	switch {
	case err != nil:
		p.refuse(r, err)
	case done:
		r.answer(decodeReply(data))
	}
	return err != nil || done
}

// settle gives the replies that have become true, and fails those that will not.
func (p *pipeline) settle() {
	upTo, failures := p.finished.collect()
	p.settled = upTo
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
}

// conclude ends one wait. After a failure the journal takes none of the proposals behind it, and an answer that changes
// nothing was given on a state that did not come to be.
func (p *pipeline) conclude(next pending, failure error) {
	if id := next.request.command.ID; id != "" && p.byID[id] == next.ticket {
		delete(p.byID, id)
	}
	if failure != nil && p.known {
		p.known = false
		p.term.node.log.Warn("an append failed", slog.String("stream", string(p.stream)), slog.Any("error", failure))
	}
	switch {
	case !next.proposed && !p.known:
		p.refuse(next.request, ErrRetry)
	case failure != nil:
		p.refuse(next.request, failure)
	default:
		p.finish(next)
	}
}

// finish answers what is durable.
func (p *pipeline) finish(next pending) {
	if next.err == nil {
		p.machine.committed(next.decision)
	}
	if next.snapshot != nil {
		p.keep(next)
	}
	if next.then != nil && next.err == nil {
		next.then()
		return
	}
	next.request.answer(next.decision.reply, next.err)
}

func (p *pipeline) keep(next pending) {
	state, err := encodeSnapshot(p.kind.Version, next.snapshot)
	if err != nil {
		p.term.node.log.Error("a snapshot cannot be encoded", slog.String("stream", string(p.stream)), slog.Any("error", err))
		return
	}
	p.term.node.journal.SaveSnapshot(p.term.partition, p.term.epoch, p.stream, persistence.Snapshot{Version: next.version, State: state})
}

// abandon ends the pipeline with its actor. What is under way is answered when its outcome is known, since it may be
// durable; nothing new begins.
func (p *pipeline) abandon() {
	p.finished.orphan()
	p.conclusion()
}

// conclusion answers what the journal has decided after the actor has ended.
func (p *pipeline) conclusion() {
	p.concluding.Lock()
	defer p.concluding.Unlock()
	upTo, failures := p.finished.collect()
	p.settled = upTo
	for len(p.waiting) > 0 && p.waiting[0].ticket <= upTo {
		next := p.waiting[0]
		p.waiting = p.waiting[1:]
		failure := failures[next.ticket]
		p.known = p.known && failure == nil
		switch {
		case next.then != nil && next.err == nil, !next.proposed && !p.known:
			p.refuse(next.request, ErrRetry)
		case failure != nil:
			p.refuse(next.request, failure)
		default:
			next.request.answer(next.decision.reply, next.err)
		}
	}
}

// refuse answers a command that was not carried out, or may not have been.
func (p *pipeline) refuse(r *request, err error) {
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
		r.answer(nil, unavailable("the outcome is not known; read it again"))
	case errors.Is(err, persistence.ErrRefused), errors.Is(err, persistence.ErrClosed):
		r.answer(nil, unavailable("the journal takes no writes for now"))
	default:
		p.term.node.log.Error("an entity cannot be read", slog.String("stream", string(p.stream)), slog.Any("error", err))
		r.answer(nil, unavailable("the entity cannot be read for now"))
	}
}

// blank tells whether the stream is one of which there is nothing.
func (p *pipeline) blank() bool { return p.known && p.version == 0 && p.revision == 0 }

// idle tells whether nothing is under way.
func (p *pipeline) idle() bool { return len(p.waiting) == 0 && p.proposed == p.settled }

// encodeReply encodes the reply of a command that is stored at a time.
func encodeReply(m proto.Message, at time.Time) []byte {
	if m == nil {
		m = &wirev1.Done{}
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		return nil
	}
	b, _ := proto.Marshal(&wirev1.Reply{Name: entity.MessageName(m), Payload: payload, At: at.UnixMilli()})
	return b
}

func decodeReply(b []byte) (proto.Message, error) {
	if len(b) == 0 {
		return &wirev1.Done{}, nil
	}
	var r wirev1.Reply
	if err := proto.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	return entity.Message(r.GetName(), r.GetPayload())
}
