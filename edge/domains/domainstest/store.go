// Package domainstest has fixtures for tests of package domains: entities in memory, and a DNS server.
package domainstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/atelier-run/atelier/entity"
	"github.com/atelier-run/atelier/entity/binding"
	"github.com/atelier-run/atelier/entity/certificates"
	bindingv1 "github.com/atelier-run/atelier/messages/binding/v1"
	certificatesv1 "github.com/atelier-run/atelier/messages/certificates/v1"
	wirev1 "github.com/atelier-run/atelier/messages/wire/v1"
)

// Entities are the store of certificates and the bindings in memory, with their real rules. They are safe for concurrent use.
type Entities struct {
	clock func() time.Time

	mu       sync.Mutex
	store    *certificatesv1.Store
	rows     map[string]map[string][]byte
	bindings map[string]*bindingv1.Binding
	versions map[string]uint64
	fail     func(proto.Message) error
}

// NewEntities returns entities without any state.
func NewEntities(clock func() time.Time) *Entities {
	return &Entities{
		clock: clock, store: &certificatesv1.Store{}, rows: map[string]map[string][]byte{}, bindings: map[string]*bindingv1.Binding{},
		versions: map[string]uint64{},
	}
}

// Fail makes Ask return the error of fn for a message, if it has one; nil ends that.
func (e *Entities) Fail(fn func(proto.Message) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail = fn
}

// Ask implements entity.Asker.
func (e *Entities) Ask(ctx context.Context, c entity.Command) (proto.Message, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fail != nil {
		if err := e.fail(c.Message); err != nil {
			return nil, err
		}
	}
	call := entity.Call{Now: e.clock(), Identity: c.Identity, Principal: c.Principal, Version: e.versions[c.Identity] + 1}
	switch {
	case c.Kind == entity.KindBinding:
		return e.askBinding(call, c.Message.(bindingv1.Command))
	case c.Kind != entity.KindCertificates || c.Identity != certificates.Identity || !entity.IsPlatform(c.Principal):
		return nil, fmt.Errorf("unexpected command to %s %q", c.Kind, c.Identity)
	}
	if list, ok := c.Message.(*wirev1.List); ok {
		return e.list(list), nil
	}
	events, err := certificates.Decide(call, e.store, c.Message.(certificatesv1.Command))
	if err != nil {
		return nil, err
	}
	before := e.store
	for _, event := range events {
		e.store = certificates.Evolve(e.store, event)
	}
	for _, row := range certificates.Rows(call, before, e.store, c.Message.(certificatesv1.Command), events) {
		if err := e.put(row); err != nil {
			return nil, err
		}
	}
	return certificates.Reply(call, e.store, c.Message.(certificatesv1.Command), events), nil
}

func (e *Entities) askBinding(call entity.Call, c bindingv1.Command) (proto.Message, error) {
	s := e.bindings[call.Identity]
	if s == nil {
		s = binding.Zero(call.Identity)
	}
	events, err := binding.Decide(call, s, c)
	if err != nil {
		return nil, err
	}
	for _, event := range events {
		s = binding.Evolve(s, event)
	}
	e.bindings[call.Identity] = s
	e.versions[call.Identity] += uint64(len(events))
	return s, nil
}

func (e *Entities) put(row entity.Row) error {
	if row.Message == nil {
		delete(e.rows[row.List], row.Key)
		return nil
	}
	encoded, err := proto.Marshal(row.Message)
	if err != nil {
		return err
	}
	if e.rows[row.List] == nil {
		e.rows[row.List] = map[string][]byte{}
	}
	e.rows[row.List][row.Key] = encoded
	return nil
}

func (e *Entities) list(l *wirev1.List) *wirev1.Page {
	page := &wirev1.Page{}
	last := ""
	for _, key := range slices.Sorted(maps.Keys(e.rows[l.GetName()])) {
		if key <= string(l.GetAfter()) || !strings.HasPrefix(key, string(l.GetPrefix())) {
			continue
		}
		if len(page.Rows) == int(l.GetLimit()) {
			page.Next = []byte(last)
			break
		}
		page.Rows, last = append(page.Rows, e.rows[l.GetName()][key]), key
	}
	return page
}

// Stored returns the bytes of all rows, as the journal would store them.
func (e *Entities) Stored() []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []byte
	for _, rows := range e.rows {
		for _, key := range slices.Sorted(maps.Keys(rows)) {
			all = append(all, rows[key]...)
		}
	}
	return all
}

// Names returns the names of the files.
func (e *Entities) Names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.rows[certificates.FileList]))
}
